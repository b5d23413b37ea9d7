// SPDX-License-Identifier: Apache-2.0

// Package state is what a host has on its disk: what the programs of package double do there, and what tests read and change.
package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/version"
)

// Root is the directory that holds a host's file system: "/" for the machine itself.
type Root string

// RootVariable is the environment variable by which the programs find their root. Default "/".
const RootVariable = "BOTTLEROCKET_ROOT"

// Paths, seen from the root. A reboot empties /run.
const (
	// Dir holds everything that Bottlerocket has elsewhere or in another form.
	Dir = "/var/lib/double"
	// FaultDir has a file for each injected fault, named after it. The file holds the fault's value.
	FaultDir = Dir + "/faults"
	// JournalFile has a line for each thing that was done.
	JournalFile = Dir + "/journal"
	// RepositoryFile holds the published releases.
	RepositoryFile = Dir + "/repository.json"
	// DiskFile is the partition table. A host without it is not a Bottlerocket.
	DiskFile = Dir + "/disk.json"
	// OSReleaseFile is what the kubelet reads the osImage from.
	OSReleaseFile = "/etc/os-release"
	// SentinelFile says that a host which is not a Bottlerocket needs a reboot.
	SentinelFile = "/run/reboot-required"
	// BootIDFile is the id of the present boot.
	BootIDFile = "/proc/sys/kernel/random/boot_id"
	// APISocket is where the Update API is served.
	APISocket = "/run/api.sock"
	// PowerSocket is where orders to reboot go, as they go to systemd on other machines.
	PowerSocket = "/run/double/power.sock"
)

// Path is a path of the host as this process sees it.
func (r Root) Path(path string) string { return filepath.Join(string(r), path) }

// read reads a file of JSON.
func (r Root) read(path string, value any) error {
	data, err := os.ReadFile(r.Path(path))
	if err == nil {
		err = json.Unmarshal(data, value)
	}
	if err != nil {
		return fmt.Errorf("reading %s, %w", path, err)
	}
	return nil
}

// Replace writes a file whole or not at all. It replaces a symbolic link as well.
func (r Root) Replace(path string, data []byte) error {
	dir := filepath.Dir(r.Path(path))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	file, err := os.CreateTemp(dir, ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	_, err = file.Write(data)
	if err := errors.Join(err, file.Chmod(0o644), file.Close()); err != nil {
		return err
	}
	return os.Rename(file.Name(), r.Path(path))
}

// BootID is the id of the present boot.
func (r Root) BootID() (string, error) {
	data, err := os.ReadFile(r.Path(BootIDFile))
	return strings.TrimSpace(string(data)), err
}

// Entry is one line of the journal.
type Entry struct {
	Time time.Time `json:"time"`
	// BootID is of the boot in which it was done.
	BootID string `json:"bootID"`
	// What was done: a program with its arguments, such as "updog update-image", or one of Event….
	What string `json:"what"`
	// Version is what the host ran then.
	Version string `json:"version"`
	// Error is how it ended; empty where that went well.
	Error string `json:"error,omitempty"`
}

// What is in the journal beside programs.
const (
	// EventBoot: the host has booted.
	EventBoot = "boot"
	// EventReboot: the host took an order to reboot, and obeys.
	EventReboot = "reboot"
)

// Note adds a line to the journal.
func (r Root) Note(what string, failure error) error {
	entry := Entry{Time: time.Now().UTC(), What: what}
	if failure != nil {
		entry.Error = failure.Error()
	}
	entry.BootID, _ = r.BootID()
	if disk, err := r.Disk(); err == nil {
		entry.Version = disk.Running
	}
	line, err := json.Marshal(entry)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(r.Path(Dir), 0o755); err != nil {
		return err
	}
	file, err := os.OpenFile(r.Path(JournalFile), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = file.Write(append(line, '\n'))
	return errors.Join(err, file.Close())
}

// ParseJournal reads the lines of a journal.
func ParseJournal(data []byte) ([]Entry, error) {
	var all []Entry
	for line := range strings.Lines(string(data)) {
		var e Entry
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			return nil, fmt.Errorf("reading the journal, %w", err)
		}
		all = append(all, e)
	}
	return all, nil
}

// Disk is the host's two sets of partitions.
type Disk struct {
	// Running is the version that has booted.
	Running string `json:"running"`
	// Other is the version on the other set; empty if nothing there could boot.
	Other string `json:"other"`
	// Next says that the next boot tries the other set.
	Next bool `json:"next"`
	// Booted says that the other set is what the host ran before, so that it can boot again.
	Booted bool `json:"booted"`
}

// Disk reads the partition table.
func (r Root) Disk() (d Disk, err error) { return d, r.read(DiskFile, &d) }

// ChangeDisk changes the partition table, unless change fails.
func (r Root) ChangeDisk(change func(*Disk) error) error {
	d, err := r.Disk()
	if err != nil {
		return err
	}
	if err := change(&d); err != nil {
		return err
	}
	data, err := json.Marshal(d)
	if err != nil {
		return err
	}
	return r.Replace(DiskFile, data)
}

// Boot boots the other set if it is next and works. Where it does not work nothing there could boot any more.
func (d *Disk) Boot(works bool) {
	switch {
	case d.Next && works:
		*d = Disk{Running: d.Other, Other: d.Running, Booted: true}
	case d.Next:
		*d = Disk{Running: d.Running}
	}
}

// Release is a published version.
type Release struct {
	Version string `json:"version"`
	// MaxVersion is the newest version that hosts may have. Those that have a newer one go back.
	MaxVersion string `json:"max_version"`
}

// Releases reads the repository.
func (r Root) Releases() (all []Release, err error) { return all, r.read(RepositoryFile, &all) }

// Choose is the release that a host takes: this one, or else the newest that it should go to; nil if it stays.
func Choose(all []Release, running, wanted string) *Release {
	var chosen *Release
	for i := range all {
		switch r := &all[i]; {
		case wanted != "" && r.Version == wanted:
			return r
		case wanted != "" || Compare(r.Version, r.MaxVersion) > 0, chosen != nil && Compare(r.Version, chosen.Version) < 0:
		case Compare(running, r.Version) < 0 || Compare(running, r.MaxVersion) > 0:
			chosen = r
		}
	}
	return chosen
}

// Compare compares versions.
func Compare(a, b string) int {
	c, err := version.MustParseSemantic(a).Compare(b)
	if err != nil {
		panic(err)
	}
	return c
}

// Variant is that of all hosts.
const Variant = "aws-k8s-1.37"

// OSRelease is the content of OSReleaseFile.
func OSRelease(version string) []byte {
	return fmt.Appendf(nil, `NAME=Bottlerocket
ID=bottlerocket
VERSION="%[1]s (%[2]s)"
PRETTY_NAME="Bottlerocket OS %[1]s (%[2]s)"
VARIANT_ID=%[2]s
VERSION_ID=%[1]s
BUILD_ID=d0ub1e00
`, version, Variant)
}

// Fault is something that goes wrong as long as the file of its name is in FaultDir. Some take a value.
type Fault string

// The faults.
const (
	// RefreshFails: the repository can't be reached. The value is the message.
	RefreshFails Fault = "refresh-fails"
	// PrepareFails: the image can't be written. What was on the other set is lost. The value is the message.
	PrepareFails Fault = "prepare-fails"
	// PrepareSlow: writing the image takes this long. A duration.
	PrepareSlow Fault = "prepare-slow"
	// ActivateFails: the partition table can't be written. The value is the message.
	ActivateFails Fault = "activate-fails"
	// UpdogOld: updog is one of before 0.4. It knows neither --json nor update-revert, and the reboot that it orders ends it.
	UpdogOld Fault = "updog-old"
	// RebootInhibited: something on the host keeps it from rebooting by the Update API.
	RebootInhibited Fault = "reboot-inhibited"
	// RebootIgnored: the host takes the order and does not reboot.
	RebootIgnored Fault = "reboot-ignored"
	// RebootSlow: the host reboots this long after the order. A duration.
	RebootSlow Fault = "reboot-slow"
	// RebootUnanswered: the host goes down before it has answered the order.
	RebootUnanswered Fault = "reboot-unanswered"
	// BootFails: a new image does not boot, and the boot loader returns to the old one.
	BootFails Fault = "boot-fails"
	// BootHangs: the host stays down until the file is gone.
	BootHangs Fault = "boot-hangs"
	// StillNeeded: after a reboot SentinelFile is there again.
	StillNeeded Fault = "still-needed"
)

// Fault reports whether a fault is injected, with its value.
func (r Root) Fault(f Fault) (value string, ok bool) {
	data, err := os.ReadFile(r.Path(filepath.Join(FaultDir, string(f))))
	return strings.TrimSpace(string(data)), !errors.Is(err, fs.ErrNotExist)
}

// Has reports whether a fault is injected.
func (r Root) Has(f Fault) bool {
	_, ok := r.Fault(f)
	return ok
}

// Failure is the error of a fault, with its value; nil without the fault.
func (r Root) Failure(f Fault) error {
	if value, ok := r.Fault(f); ok {
		return errors.New(value)
	}
	return nil
}

// Delay is how long a fault takes; zero without the fault.
func (r Root) Delay(f Fault) (time.Duration, error) {
	value, ok := r.Fault(f)
	if !ok {
		return 0, nil
	}
	return time.ParseDuration(value)
}
