// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"time"

	"moult.dev/moult/test/bottlerocket/state"
)

// order is an order to the host.
type order struct {
	Verb string `json:"verb"`
	// CheckInhibitors refuses it where something on the host must not be interrupted.
	CheckInhibitors bool `json:"checkInhibitors"`
	// Delay is how long the host waits before it obeys.
	Delay time.Duration `json:"delay"`
}

const verbReboot = "reboot"

// outcome is what became of an order, as of a program that was run.
type outcome struct {
	Code   int    `json:"code"`
	Stderr string `json:"stderr"`
}

const (
	// rebootDelay is between the answer to an order and the end, and endDelay what programs get to end by themselves.
	rebootDelay = 100 * time.Millisecond
	endDelay    = 300 * time.Millisecond
	// shutdownDelay stands for the minute that `shutdown -r` gives people.
	shutdownDelay = time.Second
)

// inhibited is what systemctl says.
const inhibited = `Operation inhibited by "image-build" (PID 4711 "buildkitd", user root), reason is "writing to disk".
Please retry operation after closing inhibitors and logging out other users.
Alternatively, ignore inhibitors and users with 'systemctl reboot -i'.
`

// servePower takes orders until the host reboots.
func (h host) servePower() error {
	listener, err := listen(h.Path(state.PowerSocket))
	if err != nil {
		return err
	}
	for {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer conn.Close()
			var o order
			if json.NewDecoder(conn).Decode(&o) == nil {
				_ = json.NewEncoder(conn).Encode(h.take(o))
			}
		}()
	}
}

// take takes an order.
func (h host) take(o order) outcome {
	if o.Verb != verbReboot {
		return outcome{1, fmt.Sprintf("Unknown command verb %s.\n", o.Verb)}
	}
	delay := max(o.Delay, rebootDelay)
	refuse := func(why string, code int) outcome {
		if err := h.Note(state.EventRebootRefused, errors.New(why)); err != nil {
			return outcome{1, err.Error()}
		}
		return outcome{code, why}
	}
	if o.CheckInhibitors && h.Has(state.RebootInhibited) {
		return refuse(inhibited, 1)
	}
	if h.Has(state.RebootIgnored) {
		return refuse("", 0)
	}
	if value, ok := h.Fault(state.RebootSlow); ok {
		var err error
		if delay, err = time.ParseDuration(value); err != nil {
			return outcome{1, err.Error()}
		}
	}
	if err := h.Note(state.EventReboot, nil); err != nil {
		return outcome{1, err.Error()}
	}
	time.AfterFunc(delay, h.reboot)
	return outcome{}
}

// reboot ends every program, and then the machine. Where a directory stands for the machine only what a reboot changes is
// changed.
func (h host) reboot() {
	if !h.Whole() {
		if err := h.rebootDirectory(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		return
	}
	_ = syscall.Kill(-1, syscall.SIGTERM) // all but this one and the first
	time.Sleep(endDelay)
	const now = syscall.Signal(34 + 5) // SIGRTMIN+5, systemd's word for it
	if err := syscall.Kill(1, now); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

// order gives an order.
func (h host) order(o order) (outcome, error) {
	conn, err := net.Dial("unix", h.Path(state.PowerSocket))
	if err != nil {
		return outcome{}, err
	}
	defer conn.Close()
	var got outcome
	if err := json.NewEncoder(conn).Encode(o); err != nil {
		return outcome{}, err
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
	switch {
	case slices.Contains(args, verbReboot):
		return h.command(order{Verb: verbReboot, CheckInhibitors: slices.Contains(args, "--check-inhibitors=yes")})
	case slices.Contains(args, "poweroff") && h.Whole():
		err := exec.Command("/bin/busybox", "poweroff", "-f").Run()
		fmt.Fprintln(os.Stderr, err)
	default:
		fmt.Fprintln(os.Stderr, "this machine knows only reboot and poweroff")
	}
	return 1
}

func (h host) shutdown(args []string) int {
	if !slices.Contains(args, "-r") {
		fmt.Fprintln(os.Stderr, "this machine knows only shutdown -r")
		return 1
	}
	o := order{Verb: verbReboot, Delay: shutdownDelay}
	if slices.Contains(args, "now") {
		o.Delay = 0
	}
	return h.command(o)
}
