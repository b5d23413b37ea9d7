// SPDX-License-Identifier: Apache-2.0

package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"
)

// DefaultSentinelFile is where Debian, Ubuntu and others say that a reboot is needed.
const DefaultSentinelFile = "/var/run/reboot-required"

// DefaultRebootCommand reboots a host with systemd.
var DefaultRebootCommand = []string{"/bin/systemctl", "reboot"}

// SentinelOptions say how a host shows that it needs a reboot, and how it is rebooted.
type SentinelOptions struct {
	// File is the file whose presence says that a reboot is needed, as the host sees it. Default DefaultSentinelFile.
	File string
	// Command, if given, runs instead of the test for File, without a shell. Exit status 0 says that a reboot is needed. 126, 127 and an
	// end by a signal are errors. Any other status says that no reboot is needed.
	Command []string
	// RebootCommand and its arguments reboot the host. Default DefaultRebootCommand.
	RebootCommand []string
	// RebootSignal, if not 0, is the number of a signal that is sent to the host's process 1 instead. It needs hostPID.
	RebootSignal int
	// Root is a directory in which the host's root is mounted. Commands run in a chroot there, which needs CAP_SYS_CHROOT. Empty: they
	// run in the mount namespace of the host's process 1, which needs hostPID, CAP_SYS_ADMIN, CAP_SYS_CHROOT and CAP_SYS_PTRACE.
	Root string
	// BootIDFile holds the boot id. Default DefaultBootIDFile.
	BootIDFile string
}

// Sentinel is any Linux host on which a file or a command says that a reboot is needed. Updates have no version, and are already
// installed: only the reboot is missing.
type Sentinel struct {
	boot
	options SentinelOptions
	at      place
	// checkLimit is how long the sentinel command may take.
	checkLimit time.Duration
}

var _ Host = (*Sentinel)(nil)

// NewSentinel makes a Sentinel.
func NewSentinel(o SentinelOptions) *Sentinel {
	o.File = cmp.Or(o.File, DefaultSentinelFile)
	if len(o.RebootCommand) == 0 {
		o.RebootCommand = DefaultRebootCommand
	}
	s := &Sentinel{boot: boot{o.BootIDFile}, options: o, at: place{root: o.Root}, checkLimit: 5 * time.Minute}
	if o.Root == "" {
		s.at = place{mounts: initMounts}
	}
	return s
}

// Version is empty, because these hosts have no version names.
func (s *Sentinel) Version(context.Context) (string, error) { return "", nil }

// Check looks for the file, or runs the command.
func (s *Sentinel) Check(ctx context.Context) (Offer, error) {
	if len(s.options.Command) == 0 {
		needed, err := s.at.exists(s.options.File)
		return Offer{Available: needed}, err
	}
	r, err := s.at.runWithin(ctx, s.checkLimit, s.options.Command...)
	if err != nil {
		return Offer{}, fmt.Errorf("running the sentinel command, %w", err)
	}
	if r.code < 0 || r.code == 126 || r.code == 127 {
		return Offer{}, fmt.Errorf("running the sentinel command, %s, %w", s.options.Command[0], r.failure())
	}
	return Offer{Available: r.code == 0}, nil
}

// Prepare does nothing if a reboot is still needed. It fails if no reboot is needed any more, or a version is wanted.
func (s *Sentinel) Prepare(ctx context.Context, version string) error {
	if version != "" {
		return fmt.Errorf("%w: this host's updates have no names such as %s", ErrOther, version)
	}
	offer, err := s.Check(ctx)
	if err == nil && !offer.Available {
		err = fmt.Errorf("%w: it no longer needs a reboot", ErrOther)
	}
	return err
}

// Perform does the same as Prepare.
func (s *Sentinel) Perform(ctx context.Context, version string) error { return s.Prepare(ctx, version) }

// Rollback fails.
func (s *Sentinel) Rollback(context.Context) error {
	return errors.New("this host has no other partitions that are known")
}

// Revert does nothing, because Perform changes nothing.
func (s *Sentinel) Revert(context.Context) error { return nil }

// Reboot runs the command, or sends the signal, if a reboot is still needed. A person may have rebooted the host since Perform.
func (s *Sentinel) Reboot(ctx context.Context) error {
	if err := s.Prepare(ctx, ""); err != nil {
		return err
	}
	if signal := s.options.RebootSignal; signal != 0 {
		return killInit(syscall.Signal(signal))
	}
	return s.at.reboot(ctx, s.options.RebootCommand...)
}
