// SPDX-License-Identifier: Apache-2.0

package rollout

import "time"

// Earlier returns the earlier of two times. Zero means no time.
func Earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// Later returns the later of two times.
func Later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
