// SPDX-License-Identifier: Apache-2.0

// Command upgrade is what the demo brings to machines, in several versions. Each has a folder:
//
//	/opt/demo/v1.1.0/demo-daemon    this program
//	/opt/demo/current               a link to the folder of the version that a machine runs
//
// Without a verb it is the daemon itself, which a machine or a pod runs. The verbs are:
//
//	prepare    puts this version on the machine, beside the version that runs
//	upgrade    switches the machine over to it, and waits until the machine's daemon runs it
//	crash      ends with an error, as a version with a defect does
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	service = "/etc/machine/services/demo-daemon" // as a machine calls the daemon
	host    = "/host"                             // where a Plan's containers see the machine's root
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	self, err := os.Executable()
	switch verb := append(os.Args, "")[1]; verb {
	case "":
		<-ctx.Done()
	case "prepare":
		err = errors.Join(err, prepare(self))
	case "upgrade":
		err = errors.Join(err, prepare(self), upgrade(ctx, self))
	default:
		err = fmt.Errorf("%s can't %s", self, verb)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func prepare(self string) error {
	data, err := os.ReadFile(self)
	return errors.Join(err, os.MkdirAll(filepath.Join(host, filepath.Dir(self)), 0o755), replace(self, func(path string) error {
		return os.WriteFile(path, data, 0o755)
	}))
}

// upgrade can be run again wherever it was interrupted. The machine starts a daemon that has ended again, in the current version.
func upgrade(ctx context.Context, self string) error {
	version := filepath.Base(filepath.Dir(self))
	if err := replace("/opt/demo/current", func(path string) error { return os.Symlink(version, path) }); err != nil {
		return err
	}
	for ctx.Err() == nil {
		pid, program := daemon()
		if program == self {
			fmt.Printf("%s runs %s, process %d\n", os.Getenv("SYSTEM_UPGRADE_NODE_NAME"), version, pid)
			return nil
		}
		if pid != 0 {
			fmt.Printf("ending %s, process %d\n", program, pid)
			_ = syscall.Kill(pid, syscall.SIGTERM) // unless it has ended meanwhile
		}
		time.Sleep(100 * time.Millisecond)
	}
	return ctx.Err()
}

// daemon finds the machine's daemon and its program. A Plan's pods see all processes of their machine.
func daemon() (pid int, program string) {
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range lines {
		if line, err := os.ReadFile(path); err == nil && strings.TrimRight(string(line), "\x00") == service {
			pid, _ = strconv.Atoi(filepath.Base(filepath.Dir(path)))
			program, _ = os.Readlink(filepath.Join(filepath.Dir(path), "exe"))
		}
	}
	return pid, program
}

// replace makes a file of the machine, whole or not at all.
func replace(path string, write func(string) error) error {
	path = filepath.Join(host, path)
	return errors.Join(os.RemoveAll(path+".partial"), write(path+".partial"), os.Rename(path+".partial", path))
}
