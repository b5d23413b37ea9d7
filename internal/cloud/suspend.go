// SPDX-License-Identifier: Apache-2.0

package cloud

import "context"

// Suspender is a ScaleSet that moves machines about by itself, for balance, unless that is suspended. A ScaleSet that does no such thing is none.
type Suspender interface {
	// Suspend stops that while turns are under way, and lets it go on afterwards: only what it has stopped itself, also in another process. Both may
	// be repeated.
	Suspend(ctx context.Context, on bool) error
}
