// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

var errHostPID = errors.New("process 1 is the agent itself: its pod needs hostPID")

// enter changes the root directory of the present thread.
func (p place) enter() error {
	if p.mounts == initMounts && os.Getpid() == 1 {
		return errHostPID
	}
	// The thread must first stop sharing its root directory with other threads.
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("leaving the agent's root directory, %w", err)
	}
	if p.mounts == "" {
		if err := unix.Chroot(p.root); err != nil {
			return fmt.Errorf("entering %s, %w", p.root, err)
		}
		return unix.Chdir("/")
	}
	ns, err := unix.Open(p.mounts, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("opening %s, %w", p.mounts, err)
	}
	defer func() { _ = unix.Close(ns) }()
	if err := unix.Setns(ns, unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("entering the host's mount namespace, %w", err)
	}
	return nil
}

// group makes a command and its child processes end together.
func group(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error {
		return unix.Kill(-cmd.Process.Pid, unix.SIGTERM)
	}
}

// killGroup kills a command and its child processes at once.
func killGroup(cmd *exec.Cmd) {
	_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
}

// killInit sends a signal to the host's first process.
func killInit(s syscall.Signal) error {
	if os.Getpid() == 1 {
		return errHostPID
	}
	return unix.Kill(1, s)
}
