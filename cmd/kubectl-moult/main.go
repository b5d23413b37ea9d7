// SPDX-License-Identifier: Apache-2.0

// Command kubectl-moult is kubectl's plugin for rollouts: kubectl moult status, why, preview, pause, resume, approve and
// retry. kubectl finds it on the PATH.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"

	"moult.dev/moult/internal/cli/config"
	"moult.dev/moult/internal/cli/preview"
	"moult.dev/moult/internal/cli/status"
	"moult.dev/moult/internal/cli/steer"
	"moult.dev/moult/internal/cli/why"
)

// version is set by the linker.
var version = "dev"

func main() {
	//nolint:forbidigo // It begins here.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	cmd := newCommand()
	// By this name kubectl asks how to complete `kubectl moult ...`.
	if filepath.Base(os.Args[0]) == "kubectl_complete-moult" {
		cmd.SetArgs(append([]string{cobra.ShellCompRequestCmd}, os.Args[1:]...))
	}
	err := cmd.ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "kubectl-moult",
		Short:         "See and steer rolling changes across the nodes of a cluster",
		Version:       version,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl moult"},
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	cluster := config.NewFlags()
	cluster.Add(root.PersistentFlags())
	clk := clock.RealClock{}
	root.AddCommand(
		status.NewCommand(clk, streams, cluster),
		why.NewCommand(clk, streams, cluster),
		preview.NewCommand(clk, streams, cluster),
	)
	root.AddCommand(steer.NewCommands(clk, streams, cluster)...)
	return root
}
