// SPDX-License-Identifier: Apache-2.0

// Command double is the programs of a host that only looks like one of Bottlerocket, chosen by the name that it is called by:
//
//	updog                    looks for updates, writes them to the other partition set, and flips the partition table
//	bottlerocket-apiserver   the Update API on /run/api.sock; thar-be-updates carries its commands out, with updog
//	bottlerocket-boot        what boot loader and firmware do: chooses a partition set and shows its version
//	bottlerocket-power       takes orders to reboot, as systemd does; systemctl and shutdown give them
//
// What they know is on the host's disk, see package state. Output, codes and messages are those of the real ones, of 2024.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"moult.dev/moult/test/bottlerocket/state"
)

// host is the host whose programs these are.
type host struct{ state.Root }

func main() {
	h := host{state.Root("/")}
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
		return h.updog(args)
	case "thar-be-updates":
		return h.dispatch(args)
	case "systemctl":
		return h.systemctl(args)
	case "shutdown":
		return h.shutdown(args)
	case "bottlerocket-apiserver":
		err = h.serveAPI()
	case "bottlerocket-power":
		err = h.servePower()
	case "bottlerocket-boot":
		err = h.boot()
	default:
		err = fmt.Errorf("there is no program %q on a host", program)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
