// SPDX-License-Identifier: Apache-2.0

package rollout

// Count returns how many elements the function accepts.
func Count[T any](all []T, accepts func(*T) bool) (n int) {
	for i := range all {
		if accepts(&all[i]) {
			n++
		}
	}
	return n
}

// Find returns the first element that the function accepts, or nil.
func Find[T any](all []T, accepts func(*T) bool) *T {
	for i := range all {
		if accepts(&all[i]) {
			return &all[i]
		}
	}
	return nil
}
