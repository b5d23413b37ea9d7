// SPDX-License-Identifier: Apache-2.0

package state

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Fault is something that goes wrong as long as the file of its name is in FaultDir. Some take a value.
type Fault string

// The faults of the repository and of updog, which the Update API runs too.
const (
	// NoUpdate: the repository has no release.
	NoUpdate Fault = "no-update"
	// RefreshFails: the repository can't be reached. The value is the message.
	RefreshFails Fault = "refresh-fails"
	// RefreshSlow: the repository takes that long to answer. A duration.
	RefreshSlow Fault = "refresh-slow"
	// PrepareFails: the image can't be written. What was on the other partition set is lost. The value is the message.
	PrepareFails Fault = "prepare-fails"
	// PrepareSlow: the image takes that long to write. A duration.
	PrepareSlow Fault = "prepare-slow"
	// ActivateFails: the partition table can't be written. The value is the message.
	ActivateFails Fault = "activate-fails"
	// ActivateSlow: writing it takes that long. A duration.
	ActivateSlow Fault = "activate-slow"
	// UpdogOld: updog is one of before 0.4: it knows neither --json nor update-revert, shows the version's
	// data format in the text, and is killed by the reboot that it asks for.
	UpdogOld Fault = "updog-old"
)

// The faults of the Update API.
const (
	// LockHeld: somebody else holds the lock of updates. Without a value for as long as the file is there, else for that long from
	// when it was made.
	LockHeld Fault = "lock-held"
	// Status500: reading the status fails.
	Status500 Fault = "status-500"
	// StatusTruncated: the status is only half sent.
	StatusTruncated Fault = "status-truncated"
	// Command500: every command fails to start.
	Command500 Fault = "command-500"
	// CommandDies: what carries a command out is killed before it has said how it ended. The value is the command, such as
	// "prepare"; empty is every command.
	CommandDies Fault = "command-dies"
	// APIHangs: requests are taken and never answered.
	APIHangs Fault = "api-hangs"
	// APIDrops: connections are closed as soon as they are there.
	APIDrops Fault = "api-drops"
)

// The faults of reboots.
const (
	// RebootInhibited: something on the host keeps it from rebooting. Orders that ignore that are carried out.
	RebootInhibited Fault = "reboot-inhibited"
	// RebootIgnored: the order is taken, and nothing follows.
	RebootIgnored Fault = "reboot-ignored"
	// RebootSlow: the host reboots that long after the order. A duration.
	RebootSlow Fault = "reboot-slow"
	// RebootUnanswered: the host is gone before it has answered the order.
	RebootUnanswered Fault = "reboot-unanswered"
	// BootFails: a new image does not boot, and the boot loader returns to the old one.
	BootFails Fault = "boot-fails"
	// BootSlow: the boot takes that much longer. A duration.
	BootSlow Fault = "boot-slow"
	// BootHangs: the host stays down until the file is gone.
	BootHangs Fault = "boot-hangs"
	// StillNeeded: after a reboot the sentinel file is there again.
	StillNeeded Fault = "still-needed"
)

// Faults are all there are.
var Faults = []Fault{
	NoUpdate, RefreshFails, RefreshSlow, PrepareFails, PrepareSlow, ActivateFails, ActivateSlow, UpdogOld,
	LockHeld, Status500, StatusTruncated, Command500, CommandDies, APIHangs, APIDrops,
	RebootInhibited, RebootIgnored, RebootSlow, RebootUnanswered, BootFails, BootSlow, BootHangs, StillNeeded,
}

// Fault reports whether a fault is injected, with its value.
func (r Root) Fault(f Fault) (value string, ok bool) {
	data, err := os.ReadFile(r.Path(filepath.Join(FaultDir, string(f))))
	return strings.TrimSpace(string(data)), err == nil
}

// Has reports whether a fault is injected.
func (r Root) Has(f Fault) bool {
	_, ok := r.Fault(f)
	return ok
}

// Failure is the error that a fault asks for, with its value or this message; nil without the fault.
func (r Root) Failure(f Fault, message string) error {
	value, ok := r.Fault(f)
	if !ok {
		return nil
	}
	if value != "" {
		message = value
	}
	return errors.New(message)
}

// Delay waits as long as a fault asks for.
func (r Root) Delay(f Fault) error {
	value, ok := r.Fault(f)
	if !ok {
		return nil
	}
	d, err := time.ParseDuration(value)
	if err != nil {
		return fmt.Errorf("reading the fault %s, %w", f, err)
	}
	time.Sleep(d)
	return nil
}

// Held reports whether LockHeld holds the lock now.
func (r Root) Held(now time.Time) bool {
	value, ok := r.Fault(LockHeld)
	if !ok || value == "" {
		return ok
	}
	d, err := time.ParseDuration(value)
	if err != nil {
		return true
	}
	info, err := os.Stat(r.Path(filepath.Join(FaultDir, string(LockHeld))))
	return err == nil && now.Before(info.ModTime().Add(d))
}

// SetFault injects a fault.
func (r Root) SetFault(f Fault, value string) error {
	return r.Replace(filepath.Join(FaultDir, string(f)), []byte(value+"\n"))
}

// ClearFault ends a fault.
func (r Root) ClearFault(f Fault) error {
	err := os.Remove(r.Path(filepath.Join(FaultDir, string(f))))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
