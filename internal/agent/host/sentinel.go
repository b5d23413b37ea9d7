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

// Defaults of SentinelOptions.
const (
	// DefaultSentinelFile is where Debian, Ubuntu and others say that a reboot is needed.
	DefaultSentinelFile = "/var/run/reboot-required"
	// DefaultRebootCommand reboots a host with systemd.
	DefaultRebootCommand = "/bin/systemctl reboot"
)

// SentinelOptions say how a host tells that it needs a reboot, and how it is rebooted.
type SentinelOptions struct {
	// File is the file whose presence says that a reboot is needed, as the host sees it. Default DefaultSentinelFile.
	File string
	// Command is asked instead of the file, if given: exit status 0 says that a reboot is needed, any other that none is. 126, 127 and an end
	// by a signal are errors. It is split into words as a shell does; no shell runs it.
	Command string
	// Check is how long Command may take. Default 5m.
	Check time.Duration
	// RebootCommand reboots the host. It is split as Command is. Default DefaultRebootCommand.
	RebootCommand string
	// RebootSignal is sent to the host's process 1 instead, if given: a number, or a name such as "SIGRTMIN+5" or "SIGINT". It needs hostPID.
	RebootSignal string
	// Root is a directory in which the host's root is mounted, where commands are run in a chroot, which needs CAP_SYS_CHROOT. Empty: they are
	// run in the mount namespace of the host's process 1, which needs hostPID, CAP_SYS_ADMIN, CAP_SYS_CHROOT and CAP_SYS_PTRACE.
	Root string
	// BootIDFile is where the boot id is. Default DefaultBootIDFile.
	BootIDFile string
}

// Sentinel is any Linux host on which something says that a reboot is needed. What a reboot brings has no version: it is prepared
// and performed already.
type Sentinel struct {
	boot
	at      place
	file    string
	command []string
	check   time.Duration
	reboot  []string
	signal  syscall.Signal
}

var _ Host = (*Sentinel)(nil)

// NewSentinel makes one. It fails where a command or the signal can't be understood.
func NewSentinel(o SentinelOptions) (*Sentinel, error) {
	s := &Sentinel{boot: boot{o.BootIDFile}, file: cmp.Or(o.File, DefaultSentinelFile), check: cmp.Or(o.Check, 5*time.Minute), at: place{root: o.Root}}
	if o.Root == "" {
		s.at = place{mounts: initMounts}
	}
	var err error
	if o.Command != "" {
		if s.command, err = splitCommand(o.Command); err != nil {
			return nil, fmt.Errorf("reading the sentinel's command %q, %w", o.Command, err)
		}
	}
	if s.reboot, err = splitCommand(cmp.Or(o.RebootCommand, DefaultRebootCommand)); err != nil {
		return nil, fmt.Errorf("reading the command that reboots %q, %w", o.RebootCommand, err)
	}
	if o.RebootSignal != "" {
		if s.signal, err = parseSignal(o.RebootSignal); err != nil {
			return nil, fmt.Errorf("reading the signal that reboots, %w", err)
		}
	}
	return s, nil
}

func splitCommand(line string) ([]string, error) {
	words, err := splitWords(line)
	if err == nil && (len(words) == 0 || words[0] == "") {
		err = errors.New("there is no command")
	}
	return words, err
}

// The real-time signals, as the C library and all that is written with it count them.
const (
	firstRealTime = 34
	lastRealTime  = 64
)

// parseSignal reads a signal: its number, its name, or its distance from the first or last real-time signal.
func parseSignal(text string) (syscall.Signal, error) {
	name := strings.TrimPrefix(strings.ToUpper(strings.TrimSpace(text)), "SIG")
	for _, base := range []struct {
		name  string
		first int
	}{{"RTMIN", firstRealTime}, {"RTMAX", lastRealTime}} {
		rest, found := strings.CutPrefix(name, base.name)
		if !found {
			continue
		}
		n := 0
		if rest != "" {
			var err error
			if n, err = strconv.Atoi(rest); err != nil || (rest[0] != '+' && rest[0] != '-') {
				return 0, fmt.Errorf("there is no signal %q", text)
			}
		}
		if n += base.first; n < firstRealTime || n > lastRealTime {
			return 0, fmt.Errorf("there is no signal %q", text)
		}
		return syscall.Signal(n), nil
	}
	n, err := strconv.Atoi(name)
	if err != nil {
		n = int(namedSignal(name))
	}
	if n < 1 || n > lastRealTime {
		return 0, fmt.Errorf("there is no signal %q", text)
	}
	return syscall.Signal(n), nil
}

// Version is empty: what these hosts run has no name.
func (s *Sentinel) Version(context.Context) (string, error) { return "", nil }

// Check asks the sentinel.
func (s *Sentinel) Check(ctx context.Context) (Offer, error) {
	if len(s.command) == 0 {
		needed, err := s.at.exists(s.file)
		return Offer{Available: needed}, err
	}
	o, err := s.at.within(ctx, s.check, s.command...)
	if err != nil {
		return Offer{}, fmt.Errorf("asking the sentinel, %w", err)
	}
	switch {
	case o.code == 0:
		return Offer{Available: true}, nil
	case o.code < 0 || o.code == 126 || o.code == 127:
		return Offer{}, fmt.Errorf("asking the sentinel, %s, %w", s.command[0], o.failure())
	default:
		return Offer{}, nil
	}
}

// Prepare does nothing where a reboot is still needed.
func (s *Sentinel) Prepare(ctx context.Context, version string) error {
	if err := s.still(ctx, version); err != nil {
		return fmt.Errorf("preparing the reboot, %w", err)
	}
	return nil
}

// Perform does nothing where a reboot is still needed.
func (s *Sentinel) Perform(ctx context.Context, version string) error {
	if err := s.still(ctx, version); err != nil {
		return fmt.Errorf("preparing the reboot, %w", err)
	}
	return nil
}

// still fails where no reboot is needed any more, or something else is wanted.
func (s *Sentinel) still(ctx context.Context, version string) error {
	if version != "" {
		return otherError(fmt.Sprintf("this host's updates have no names such as %s", version))
	}
	offer, err := s.Check(ctx)
	switch {
	case err != nil:
		return err
	case !offer.Available:
		return otherError("the host needs no reboot any more")
	}
	return nil
}

// Revert does nothing: Perform does not either.
func (s *Sentinel) Revert(context.Context) error { return nil }

// Reboot runs the command, or sends the signal, where a reboot is still needed: somebody may have rebooted the host since it was performed. The
// reboot may end the command before it ends by itself, which is no failure.
func (s *Sentinel) Reboot(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := s.still(ctx, ""); err != nil {
		return fmt.Errorf("rebooting, %w", err)
	}
	if s.signal != 0 {
		if err := killInit(s.signal); err != nil {
			return fmt.Errorf("rebooting by signal %d, %w", s.signal, err)
		}
		return nil
	}
	o, err := s.at.run(ctx, s.reboot...)
	if err != nil {
		return fmt.Errorf("rebooting, %w", err)
	}
	if ended(o) {
		return nil
	}
	if err := o.failure(); err != nil {
		return fmt.Errorf("rebooting by %s, %w", strings.Join(s.reboot, " "), err)
	}
	return nil
}
