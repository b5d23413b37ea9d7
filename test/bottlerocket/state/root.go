// SPDX-License-Identifier: Apache-2.0

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

	"golang.org/x/sys/unix"
)

// Root is the directory that holds a host's file system: "/" for the machine itself.
type Root string

// RootVariable is the environment variable by which the programs find their root. Default "/".
const RootVariable = "BOTTLEROCKET_ROOT"

// Where things are, seen from the root. What is below /run is in memory, and lost by a reboot.
const (
	// Dir holds everything that Bottlerocket has elsewhere or in another form.
	Dir = "/var/lib/double"
	// FaultDir has a file for each fault that is injected, named after it. What is in the file is the fault's value.
	FaultDir = Dir + "/faults"
	// JournalFile has a line for each thing that was done.
	JournalFile = Dir + "/journal"
	// RepositoryFile is the releases that there are.
	RepositoryFile = Dir + "/repository.json"
	// SettingsFile is what steers updates.
	SettingsFile = Dir + "/settings.json"
	// DiskFile is the partition table.
	DiskFile = Dir + "/disk.json"

	// OSReleaseFile is what the kubelet reads the osImage from.
	OSReleaseFile = "/etc/os-release"
	// BootIDFile is the id of the present boot.
	BootIDFile = "/proc/sys/kernel/random/boot_id"
	// APISocket is where the Update API is served.
	APISocket = "/run/api.sock"
	// LockFile and StatusFile are the update dispatcher's.
	LockFile = "/run/lock/thar-be-updates.lock"
	// StatusFile is the state of updates since the boot.
	StatusFile = "/run/cache/thar-be-updates/status.json"
	// PowerSocket is where orders to reboot go, as they go to systemd on other machines.
	PowerSocket = "/run/double/power.sock"
)

// Path is a path of the host as this process sees it.
func (r Root) Path(path string) string { return filepath.Join(string(r), path) }

// Whole reports whether this is a machine, and not a directory that stands for one.
func (r Root) Whole() bool { return filepath.Clean(string(r)) == "/" }

// read reads a file of JSON. One that is not there is no error, and leaves value as it is.
func (r Root) read(path string, value any) error {
	data, err := os.ReadFile(r.Path(path))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(data, value)
	}
	if err != nil {
		return fmt.Errorf("reading %s, %w", path, err)
	}
	return nil
}

// write writes a file of JSON, whole or not at all.
func (r Root) write(path string, value any) error {
	data, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	return r.Replace(path, append(data, '\n'))
}

// Replace writes a file whole or not at all. A symbolic link there is replaced as well.
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

// locked calls change while no other process does so.
func (r Root) locked(change func() error) error {
	if err := os.MkdirAll(r.Path(Dir), 0o755); err != nil {
		return err
	}
	file, err := os.OpenFile(r.Path(Dir+"/lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	defer file.Close()
	for {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX)
		if err == nil {
			return change()
		}
		if !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("locking the host's state, %w", err)
		}
	}
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
	// How it ended; empty where that went well.
	Error string `json:"error,omitempty"`
}

// What is in the journal beside programs.
const (
	// EventBoot: the host has booted.
	EventBoot = "boot"
	// EventReboot: the host was told to reboot, and will.
	EventReboot = "reboot"
	// EventRebootRefused: the host was told to reboot, and will not.
	EventRebootRefused = "reboot refused"
)

// Note adds a line to the journal.
func (r Root) Note(what string, failure error) error {
	entry := Entry{Time: time.Now().UTC(), What: what}
	if failure != nil {
		entry.Error = failure.Error()
	}
	entry.BootID, _ = r.BootID()
	if disk, err := r.Disk(); err == nil {
		entry.Version = disk.Running().Version
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
