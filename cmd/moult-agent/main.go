// SPDX-License-Identifier: Apache-2.0

// Command moult-agent is the part of Moult that runs on each host that updates itself. It carries out the operator's orders on the host.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"
)

// version is set by the linker.
var version = "dev"

func main() {
	//nolint:forbidigo // The program starts here.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	limitResources(os.LookupEnv)
	err := execute(ctx, os.Args[1:], os.LookupEnv, os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// The limits of the process, however many processors the host has.
const (
	processors  = 2
	memoryLimit = 10 << 20
)

// limitResources keeps the process small, unless the environment sets other limits.
func limitResources(lookup func(string) (string, bool)) {
	if _, ok := lookup("GOMAXPROCS"); !ok {
		runtime.GOMAXPROCS(min(processors, runtime.GOMAXPROCS(0)))
	}
	if _, ok := lookup("GOMEMLIMIT"); !ok {
		debug.SetMemoryLimit(memoryLimit)
	}
}

// execute runs a command line.
func execute(ctx context.Context, args []string, lookup func(string) (string, bool), out, errOut io.Writer) error {
	root := &cobra.Command{
		Use:   "moult-agent",
		Short: "The part of Moult that runs on each host which updates itself",
		Long: `The part of Moult that runs on each host which updates itself, in a DaemonSet.

It writes on its own Node what the host runs and offers. The host prepares an update, makes it the next boot and reboots
when Moult's operator asks for that on the Node. By itself it changes nothing.

The command line of the Bottlerocket update operator works too: moult-agent -agent -nodeName NAME [-debug].`,
		Version:       version,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(newRunCommand(lookup))
	root.SetArgs(translate(args))
	root.SetOut(out)
	root.SetErr(errOut)
	return root.ExecuteContext(ctx)
}
