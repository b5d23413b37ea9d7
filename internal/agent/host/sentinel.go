// SPDX-License-Identifier: Apache-2.0

package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
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
	// RebootSignal, if given, is sent to the host's process 1 instead: a number, or a name such as "SIGRTMIN+5". It needs hostPID.
	RebootSignal string
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
	signal  syscall.Signal
	// checkLimit is how long the sentinel command may take.
	checkLimit time.Duration
}

var _ Host = (*Sentinel)(nil)

// NewSentinel makes a Sentinel. It fails if the signal is not known.
func NewSentinel(o SentinelOptions) (*Sentinel, error) {
	o.File = cmp.Or(o.File, DefaultSentinelFile)
	if len(o.RebootCommand) == 0 {
		o.RebootCommand = DefaultRebootCommand
	}
	s := &Sentinel{boot: boot{o.BootIDFile}, options: o, at: place{root: o.Root}, checkLimit: 5 * time.Minute}
	if o.Root == "" {
		s.at = place{mounts: initMounts}
	}
	if s.signal = parseSignal(o.RebootSignal); s.signal == 0 && o.RebootSignal != "" {
		return nil, fmt.Errorf("there is no signal %q: write a number, or a name such as SIGRTMIN+5 or SIGINT", o.RebootSignal)
	}
	return s, nil
}

// The first and the last real-time signal, as the C library counts them.
const (
	firstRealTime = 34
	lastRealTime  = 64
)

// parseSignal reads the number or the name of a signal; 0 if there is none.
func parseSignal(text string) syscall.Signal {
	name := strings.TrimPrefix(strings.ToUpper(text), "SIG")
	n, err := strconv.Atoi(name)
	if offset, ok := strings.CutPrefix(name, "RTMIN+"); ok {
		n, err = strconv.Atoi(offset)
		n += firstRealTime
	} else if err != nil {
		return namedSignal(name)
	}
	if err != nil || n < 1 || n > lastRealTime {
		return 0
	}
	return syscall.Signal(n)
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
	if s.signal != 0 {
		return killInit(s.signal)
	}
	return s.at.reboot(ctx, s.options.RebootCommand...)
}
