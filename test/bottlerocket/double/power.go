// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/google/uuid"

	"moult.dev/moult/test/bottlerocket/state"
)

// order is an order to reboot.
type order struct {
	// CheckInhibitors refuses it where something on the host must not be interrupted.
	CheckInhibitors bool `json:"checkInhibitors"`
	// Delay is how long the host waits before it obeys.
	Delay time.Duration `json:"delay"`
}

// outcome is what became of an order, as of a program that was run.
type outcome struct {
	Code   int    `json:"code"`
	Stderr string `json:"stderr"`
}

const (
	// rebootDelay is between the answer to an order and the end, and endDelay what programs get to end by themselves.
	rebootDelay = 100 * time.Millisecond
	endDelay    = 300 * time.Millisecond
	// shutdownDelay is the minute that `shutdown -r` gives people.
	shutdownDelay = time.Second
)

// serve takes orders until the host reboots, and serves the Update API where the host has one.
func (h host) serve(updates bool) error {
	path := h.Path(state.PowerSocket)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	listener, err := listen(path)
	if err != nil {
		return err
	}
	a := &api{host: h}
	ended := make(chan error, 1)
	if updates {
		go func() { ended <- a.serve() }()
	}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				ended <- err
				return
			}
			go func() {
				defer conn.Close()
				var o order
				if json.NewDecoder(conn).Decode(&o) == nil {
					_ = json.NewEncoder(conn).Encode(a.take(o))
				}
			}()
		}
	}()
	return <-ended
}

// take takes an order.
func (a *api) take(o order) outcome {
	if o.CheckInhibitors && a.Has(state.RebootInhibited) {
		return outcome{1, "Operation inhibited by \"image-build\" (PID 4711 \"buildkitd\", user root), reason is \"writing to disk\".\n"}
	}
	if a.Has(state.RebootIgnored) {
		return outcome{}
	}
	slow, err := a.Delay(state.RebootSlow)
	if err := errors.Join(err, a.Note(state.EventReboot, nil)); err != nil {
		return outcome{1, err.Error()}
	}
	time.AfterFunc(max(o.Delay, rebootDelay, slow), a.reboot)
	return outcome{}
}

// reboot ends every program, and then the machine. For a directory it changes only what a reboot changes there.
func (a *api) reboot() {
	var err error
	if a.whole() {
		_ = syscall.Kill(-1, syscall.SIGTERM) // All but this one and the first.
		time.Sleep(endDelay)
		const now = syscall.Signal(34 + 5) // SIGRTMIN+5, systemd's word for it.
		err = syscall.Kill(1, now)
	} else {
		a.lock.Lock()
		defer a.lock.Unlock()
		a.status = nil
		_ = os.Remove(a.Path(state.SentinelFile))
		err = errors.Join(a.Replace(state.BootIDFile, []byte(uuid.NewString()+"\n")), a.boot())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

// whole reports whether the host is a machine, and not a directory.
func (h host) whole() bool { return h.Root == "/" }

// order gives an order.
func (h host) order(o order) (got outcome, err error) {
	conn, err := net.Dial("unix", h.Path(state.PowerSocket))
	if err != nil {
		return got, err
	}
	defer conn.Close()
	if err := json.NewEncoder(conn).Encode(o); err != nil {
		return got, err
	}
	return got, json.NewDecoder(conn).Decode(&got)
}

// command gives an order as a program does.
func (h host) command(o order) int {
	got, err := h.order(o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "Failed to connect to bus:", err)
		return 1
	}
	fmt.Fprint(os.Stderr, got.Stderr)
	return got.Code
}

func (h host) systemctl(args []string) int {
	if slices.Contains(args, "poweroff") && h.whole() {
		err := exec.Command("/bin/busybox", "poweroff", "-f").Run()
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if !slices.Contains(args, "reboot") {
		fmt.Fprintln(os.Stderr, "this machine knows only reboot and poweroff")
		return 1
	}
	return h.command(order{})
}

func (h host) shutdown(args []string) int {
	if !slices.Contains(args, "-r") {
		fmt.Fprintln(os.Stderr, "this machine knows only shutdown -r")
		return 1
	}
	if slices.Contains(args, "now") {
		return h.command(order{})
	}
	return h.command(order{Delay: shutdownDelay})
}
