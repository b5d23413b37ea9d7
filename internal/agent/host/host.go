// SPDX-License-Identifier: Apache-2.0

// Package host is the machine that an agent runs on, behind one small interface: Bottlerocket's updog, Bottlerocket's Update API, or
// any Linux with a sentinel.
package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
)

// ErrOther says that the host does not offer the wanted version.
var ErrOther = errors.New("the host does not offer the wanted version")

// otherVersion returns an ErrOther that names the versions. Empty means that any version is wanted, or that none is offered.
func otherVersion(wanted, offered string) error {
	return fmt.Errorf("%w: %s is wanted, and it offers %s", ErrOther, cmp.Or(wanted, "any"), cmp.Or(offered, "none"))
}

// Offer is what a host offers.
type Offer struct {
	// Available is true when there is an update, or a reboot is needed.
	Available bool
	// Version is the update's name, such as "1.20.3"; empty where updates have none.
	Version string
}

// Host is one machine. A method may be called again after an earlier call was interrupted, also by the end of the process. A step that is
// already done is not repeated, and is no error. Each method returns when it is done or has failed, or with the context's error.
type Host interface {
	// Version returns what the host runs, such as "1.20.3"; empty where versions have no name.
	Version(ctx context.Context) (string, error)
	// BootID returns the id of the present boot; another one after each reboot.
	BootID() (string, error)
	// Check returns what the host offers.
	Check(ctx context.Context) (Offer, error)
	// Prepare fetches the version, which has no leading v. Empty means any version. ErrOther if the host offers another one.
	Prepare(ctx context.Context, version string) error
	// Perform makes the next boot use the prepared version. ErrOther if another version is prepared.
	Perform(ctx context.Context, version string) error
	// Rollback makes the next boot use the other partitions, as they are. It fails if the host offers no way to them, or they can't boot.
	Rollback(ctx context.Context) error
	// Revert makes the next boot use the running version again, if Perform or Rollback has changed that.
	Revert(ctx context.Context) error
	// Reboot orders the reboot, and returns when the host has accepted the order. It may never return.
	Reboot(ctx context.Context) error
}

// DefaultBootIDFile is where the kernel shows the id of the present boot, also in containers. The kubelet takes
// status.nodeInfo.bootID from it.
const DefaultBootIDFile = "/proc/sys/kernel/random/boot_id"

// boot is the present boot of the host.
type boot struct {
	// file holds its id; empty is DefaultBootIDFile.
	file string
}

// BootID returns the id of the present boot.
func (b boot) BootID() (string, error) {
	file := cmp.Or(b.file, DefaultBootIDFile)
	data, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("reading the boot id, %w", err)
	}
	id := strings.TrimSpace(string(data))
	if id == "" {
		return "", fmt.Errorf("reading the boot id, %s is empty", file)
	}
	return id, nil
}
