// SPDX-License-Identifier: Apache-2.0

// Command moult-agent is the part of Moult that runs on each host which updates itself: moult-agent run has the host do what the
// operator asks for, and moult-agent label puts the label on Bottlerocket hosts by which they are found.
package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
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
	//nolint:forbidigo // It begins here.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	slim(os.LookupEnv)
	err := execute(ctx, os.Args[1:], os.LookupEnv, os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// What the process takes of a host, however many processors that has: little is done here, and little is kept.
const (
	processors  = 2
	memoryLimit = 10 << 20
)

// slim keeps the process small, as far as the environment does not say how.
func slim(lookup func(string) (string, bool)) {
	if _, ok := lookup("GOMAXPROCS"); !ok {
		runtime.GOMAXPROCS(min(processors, runtime.GOMAXPROCS(0)))
	}
	if _, ok := lookup("GOMEMLIMIT"); !ok {
		debug.SetMemoryLimit(memoryLimit)
	}
}

// execute runs a command line.
func execute(ctx context.Context, args []string, lookup func(string) (string, bool), out, errOut io.Writer) error {
	args, err := translate(args)
	if err != nil {
		return err
	}
	root := &cobra.Command{
		Use:   "moult-agent",
		Short: "The part of Moult that runs on each host which updates itself",
		Long: `The part of Moult that runs on each host which updates itself, in a DaemonSet.

It says on its own Node what the host runs and offers, and has the host prepare an update, make it the next boot and reboot
when Moult's operator asks for it there. By itself it changes nothing.

The spelling of the Bottlerocket update operator works too: moult-agent -agent -nodeName NAME [-debug].`,
		Version:       version,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(newRunCommand(lookup), newLabelCommand(lookup))
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(errOut)
	return root.ExecuteContext(ctx)
}

// logger logs as text.
func logger(w io.Writer, verbose bool) *slog.Logger {
	level := slog.LevelInfo
	if verbose {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level}))
}
