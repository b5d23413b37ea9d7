// SPDX-License-Identifier: Apache-2.0

// Package host is the machine that an agent runs on, behind one small interface: Bottlerocket's updog, Bottlerocket's Update API, or
// any Linux with a sentinel.
package host

import (
	"context"
	"errors"
)

// ErrOther says that the host has another version to offer than the one that it is to be brought to, or none at all.
var ErrOther = errors.New("the host has another version to offer")

// Offer is what a host has to offer.
type Offer struct {
	// Available is true when there is an update, or a reboot is needed.
	Available bool
	// Version is the update's name, such as "1.20.3"; empty where updates have none.
	Version string
}

// Host is one machine. Its methods may be called again after any of them was broken off, by the end of the process too: what
// is done already is not done again, and is no error. Each returns when it is done or has failed, or with the context's error.
type Host interface {
	// Version is what the host runs, such as "1.20.3"; empty where versions have no name.
	Version(ctx context.Context) (string, error)
	// BootID is the id of the present boot; another one after each reboot.
	BootID() (string, error)
	// Check asks for what the host has to offer.
	Check(ctx context.Context) (Offer, error)
	// Prepare fetches the version. Empty is whatever the host offers; ErrOther if it offers another one.
	Prepare(ctx context.Context, version string) error
	// Perform makes the next boot one into the version that was prepared. ErrOther if that is another one.
	Perform(ctx context.Context, version string) error
	// Revert makes the next boot one into what runs, where Perform has changed that.
	Revert(ctx context.Context) error
	// Reboot tells the host to reboot, and returns when it has taken the order, which may be never.
	Reboot(ctx context.Context) error
}
