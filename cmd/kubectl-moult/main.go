// SPDX-License-Identifier: Apache-2.0

// Command kubectl-moult is kubectl's plugin for rollouts: kubectl moult status, why, preview, pause, resume, approve and
// retry. kubectl finds it on the PATH. Under the name kubectl-eds it is kubectl's plugin for ExtendedDaemonSets.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"

	"moult.dev/moult/internal/cli/preview"
	"moult.dev/moult/internal/cli/status"
	"moult.dev/moult/internal/cli/steer"
	"moult.dev/moult/internal/cli/why"

	"moult.dev/moult/internal/cli/source"
)

// version is set by the linker.
var version = "dev"

func main() {
	//nolint:forbidigo // It begins here.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := commandFor(os.Args).ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func newCommand(clk clock.WithTicker, streams genericiooptions.IOStreams, cluster source.Config) *cobra.Command {
	root := &cobra.Command{
		Use:           "kubectl-moult",
		Short:         "See and steer rolling changes across the nodes of a cluster",
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl moult"},
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(
		status.NewCommand(clk, streams, cluster),
		why.NewCommand(clk, streams, cluster),
		preview.NewCommand(clk, streams, cluster),
	)
	root.AddCommand(steer.NewCommands(clk, streams, cluster)...)
	return root
}
