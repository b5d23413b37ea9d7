// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"os"
)

// The names under which an executable that contains this package is started again to play another part. A test has no main function to give
// a subcommand to, and a helper program would have to be built and kept in step with the test.
const (
	supervisorName  = "moult-cluster-supervisor"
	machineInitName = "moult-machine-init"
)

// selfExecutable is this process's program, even if its file is gone by now.
const selfExecutable = "/proc/self/exe"

func init() {
	var part func(arguments []string) error
	switch os.Args[0] {
	case supervisorName:
		part = superviseMain
	case machineInitName:
		part = machineInitMain
	default:
		return
	}
	if err := part(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}
