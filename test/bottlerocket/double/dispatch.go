// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"moult.dev/moult/test/bottlerocket/state"
)

// Exit codes of thar-be-updates.
const (
	codeOther      = 1
	codeLockHeld   = 64
	codeDisallowed = 65
	codeNoUpdate   = 66
	codeNoStaged   = 67
)

// updateStatus is what GET /updates/status answers, and what is kept of updates in memory.
type updateStatus struct {
	State             string         `json:"update_state"`
	Available         []string       `json:"available_updates"`
	Chosen            *state.Image   `json:"chosen_update"`
	ActivePartition   *partition     `json:"active_partition"`
	StagingPartition  *partition     `json:"staging_partition"`
	MostRecentCommand *commandResult `json:"most_recent_command"`
}

type partition struct {
	Image      state.Image `json:"image"`
	NextToBoot bool        `json:"next_to_boot"`
}

type commandResult struct {
	Type       string  `json:"cmd_type"`
	Status     string  `json:"cmd_status"`
	Timestamp  string  `json:"timestamp"`
	ExitStatus *int    `json:"exit_status"`
	Stderr     *string `json:"stderr"`
}

// States of an update.
const (
	idle      = "Idle"
	available = "Available"
	staged    = "Staged"
	ready     = "Ready"
)

// refused is a command that can't be carried out.
type refused struct {
	code    int
	message string
}

func (r refused) Error() string { return r.message }

// readStatus reads the status. It does not exist before the first command since the boot.
func (h host) readStatus() (*updateStatus, error) {
	data, err := os.ReadFile(h.Path(state.StatusFile))
	if err != nil {
		return nil, err
	}
	s := &updateStatus{}
	return s, json.Unmarshal(data, s)
}

func (h host) writeStatus(s *updateStatus) error {
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return h.Replace(state.StatusFile, data)
}

// newStatus is the first status since the boot.
func (h host) newStatus() (*updateStatus, error) {
	disk, err := h.Disk()
	if err != nil {
		return nil, err
	}
	next, err := disk.ActiveIsNext()
	if err != nil {
		return nil, err
	}
	return &updateStatus{State: idle, Available: []string{}, ActivePartition: &partition{Image: disk.Running(), NextToBoot: next}}, nil
}

// openLock opens the lock of updates. It is free again when every process has closed it that has it from this one.
func (h host) openLock() (*os.File, error) {
	path := h.Path(state.LockFile)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	return os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_TRUNC, 0o644)
}

// lock takes the lock, shared or exclusive, or fails at once.
func (h host) lock(file *os.File, how int) error {
	if h.Held(time.Now()) {
		return unix.EWOULDBLOCK
	}
	return unix.Flock(int(file.Fd()), how|unix.LOCK_NB)
}

// carryOut is the flag of the process that does the work of a command, which inherits the lock.
const carryOut = "--carry-out"

// dispatch runs thar-be-updates: it checks whether a command is allowed, and returns when another process has begun it.
func (h host) dispatch(args []string) int {
	var err error
	switch {
	case len(args) == 2 && args[0] == carryOut:
		err = h.carryOut(args[1])
	case len(args) == 1:
		err = h.begin(args[0])
	default:
		fmt.Fprintln(os.Stderr, "Usage: thar-be-updates refresh|prepare|activate|deactivate")
		return 2
	}
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, err)
	if r, ok := errors.AsType[refused](err); ok {
		return r.code
	}
	return codeOther
}

func (h host) begin(command string) error {
	lock, err := h.openLock()
	if err != nil {
		return fmt.Errorf("Failed to access lockfile '%s': %w", state.LockFile, err) //nolint:staticcheck // As it says it.
	}
	defer lock.Close()
	if err := h.lock(lock, unix.LOCK_EX); err != nil {
		return refused{codeLockHeld, fmt.Sprintf("Unable to obtain lock on lockfile '%s': %v", state.LockFile, err)}
	}
	status, err := h.readStatus()
	if errors.Is(err, fs.ErrNotExist) {
		if status, err = h.newStatus(); err == nil {
			err = h.writeStatus(status)
		}
	}
	if err != nil {
		return err
	}
	if err := status.allows(command); err != nil {
		return err
	}
	cmd := exec.Command(self)
	cmd.Args = []string{"thar-be-updates", carryOut, command}
	cmd.ExtraFiles = []*os.File{lock}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd.Start() // and it goes on by itself
}

// self is this program, whatever has become of its file.
const self = "/proc/self/exe"

// allows says why a command is not allowed; nil if it is.
func (s *updateStatus) allows(command string) error {
	from := map[string][]string{
		"refresh": {idle, available, staged, ready}, "prepare": {available, staged}, "activate": {staged}, "deactivate": {ready},
	}
	switch {
	case !slices.Contains(from[command], s.State):
		return refused{codeDisallowed, fmt.Sprintf("Command '%s' not allowed when state is '%s'", command, s.State)}
	case command == "prepare" && s.Chosen == nil:
		return refused{codeNoUpdate, "Chosen update does not exist"}
	case (command == "activate" || command == "deactivate") && s.StagingPartition == nil:
		return refused{codeNoStaged, "No update image applied to the inactive partition set"}
	default:
		return nil
	}
}

// carryOut does the work of a command, and writes down how it ended.
func (h host) carryOut(command string) error {
	status, err := h.readStatus()
	if err != nil {
		return err
	}
	if which, ok := h.Fault(state.CommandDies); ok && (which == "" || which == command) {
		return syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	err = h.step(status, command)
	return errors.Join(err, h.writeStatus(status))
}

func (h host) step(s *updateStatus, command string) error {
	switch command {
	case "refresh":
		out, ok := s.ask(command, "whats", "--all", "--json")
		chosen := false
		if ok {
			var err error
			if chosen, err = h.refreshed(s, out); err != nil {
				return err
			}
		}
		// What is staged or ready stays so.
		if s.State == idle || s.State == available {
			if s.State = idle; chosen {
				s.State = available
			}
		}
	case "prepare":
		// It is told nothing of what was chosen, and chooses by itself.
		if _, ok := s.ask(command, "update-image"); ok {
			s.StagingPartition, s.State = &partition{Image: *s.Chosen}, staged
		}
	case "activate":
		if _, ok := s.ask(command, "update-apply"); ok {
			s.StagingPartition.NextToBoot, s.ActivePartition.NextToBoot, s.State = true, false, ready
		}
	case "deactivate":
		if _, ok := s.ask(command, "update-revert"); ok {
			s.StagingPartition.NextToBoot, s.ActivePartition.NextToBoot, s.State = false, true, staged
		}
	}
	return nil
}

// timestamp is nanoseconds in UTC.
const timestamp = "2006-01-02T15:04:05.000000000Z"

// ask runs updog for a command, and writes down how that ended.
func (s *updateStatus) ask(command string, args ...string) (out []byte, ok bool) {
	var stdout, stderr bytes.Buffer
	cmd := exec.Command(self)
	cmd.Args = append([]string{"updog"}, args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	code := 0
	if err != nil {
		code = codeOther
		if cmd.ProcessState != nil {
			if ended, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ended.Signaled() {
				code = int(ended.Signal())
			} else if ok {
				code = ended.ExitStatus()
			}
		}
	}
	text := stderr.String()
	s.MostRecentCommand = &commandResult{
		Type: command, Status: "Success", Timestamp: time.Now().UTC().Format(timestamp), ExitStatus: &code, Stderr: &text,
	}
	if code != 0 {
		s.MostRecentCommand.Status = "Failed"
	}
	return stdout.Bytes(), code == 0
}

// refreshed takes over what updog has listed, and reports whether there is something for the host among it.
func (h host) refreshed(s *updateStatus, list []byte) (bool, error) {
	var releases []state.Release
	if err := json.Unmarshal(list, &releases); err != nil {
		return false, fmt.Errorf("Failed to deserialize update info: %w", err) //nolint:staticcheck // As it says it.
	}
	settings, err := h.Settings()
	if err != nil {
		return false, err
	}
	disk, err := h.Disk()
	if err != nil {
		return false, err
	}
	s.Available = []string{}
	for _, r := range releases {
		s.Available = append(s.Available, r.Version)
	}
	chosen, err := state.Choose(releases, disk.Running().Version, settings.VersionLock)
	if err != nil {
		return false, err
	}
	if s.Chosen = nil; chosen != nil {
		s.Chosen = &state.Image{Arch: chosen.Arch, Version: chosen.Version, Variant: chosen.Variant}
	}
	return chosen != nil, nil
}
