// SPDX-License-Identifier: Apache-2.0

// Program double is every program of a simulated host. It behaves like the one by whose name it is called.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"moult.dev/moult/test/bottlerocket/state"
)

// host is the host whose programs these are.
type host struct{ state.Root }

func main() {
	h := host{"/"}
	if root, ok := os.LookupEnv(state.RootVariable); ok {
		h.Root = state.Root(root)
	}
	os.Exit(h.run(filepath.Base(os.Args[0]), os.Args[1:]))
}

// run runs one of the programs and returns its exit code.
func (h host) run(program string, args []string) int {
	var err error
	switch program {
	case "updog":
		return h.updog(args, os.Stdout, os.Stderr)
	case "signpost":
		err = h.signpost(args)
	case "systemctl":
		return h.systemctl(args)
	case "shutdown":
		return h.shutdown(args)
	case "bottlerocket-apiserver":
		err = h.serve(true)
	case "bottlerocket-power":
		err = h.serve(false)
	case "bottlerocket-boot":
		err = h.boot()
	default:
		err = fmt.Errorf("a host has no program %q", program)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// boot is what happens between power on and the first service.
func (h host) boot() error {
	for h.Has(state.BootHangs) {
		time.Sleep(50 * time.Millisecond)
	}
	if h.Has(state.StillNeeded) {
		if err := h.Replace(state.SentinelFile, nil); err != nil {
			return err
		}
	}
	if _, err := os.Stat(h.Path(state.DiskFile)); err == nil {
		running := ""
		err := h.ChangeDisk(func(d *state.Disk) error {
			d.Boot(!h.Has(state.BootFails))
			running = d.Running
			return nil
		})
		if err != nil {
			return err
		}
		if err := h.Replace(state.OSReleaseFile, state.OSRelease(running)); err != nil {
			return err
		}
	}
	return h.Note(state.EventBoot, nil)
}
