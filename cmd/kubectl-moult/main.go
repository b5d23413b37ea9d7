// SPDX-License-Identifier: Apache-2.0

// Command kubectl-moult is kubectl's plugin for rollouts: kubectl moult status. kubectl finds it on the PATH.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"

	"moult.dev/moult/internal/cli/status"
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
	config := genericclioptions.NewConfigFlags(true)
	config.AddFlags(root.PersistentFlags())
	root.AddCommand(status.NewCommand(clock.RealClock{}, streams, config))
	return root
}
