// SPDX-License-Identifier: Apache-2.0

package cloud

import "context"

// Suspender is a ScaleSet that replaces machines by itself to balance its zones, unless that is suspended.
type Suspender interface {
	// Suspend stops that while turns are under way. Afterwards it resumes what it has stopped itself, also in another process. Both may be repeated.
	Suspend(ctx context.Context, on bool) error
}
