// SPDX-License-Identifier: Apache-2.0

package host

import "fmt"

// otherError is an ErrOther that says what the host has instead.
type otherError string

func (e otherError) Error() string { return string(e) }

// Is makes it an ErrOther.
func (e otherError) Is(target error) bool { return target == ErrOther }

// other says that the host has not what it is to be brought to; wanted may be empty, whatever it has, and offered too, none.
func other(wanted, offered string) error {
	switch {
	case offered == "" && wanted == "":
		return otherError("the host has nothing to offer any more")
	case offered == "":
		return otherError(fmt.Sprintf("the host has not %s to offer, nor anything else", wanted))
	default:
		return otherError(fmt.Sprintf("the host has %s to offer, not %s", offered, wanted))
	}
}
