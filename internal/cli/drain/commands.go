// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"context"
	"fmt"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// NewCommands makes the commands drain, cordon and uncordon, to be mounted under a root.
func NewCommands(clk clock.Clock, streams genericiooptions.IOStreams) []*cobra.Command {
	var commands []*cobra.Command
	for _, mount := range []func(*command) *cobra.Command{newDrain, newCordon, newUncordon} {
		commands = append(commands, mount(&command{clock: clk, IOStreams: streams, environment: process()}))
	}
	return commands
}

// command is what the three share: which nodes, of which cluster, and whether in earnest.
type command struct {
	genericiooptions.IOStreams
	clock       clock.Clock
	environment environment

	connect  func() (client.Client, error)
	selector string
	dryRun   dryRun
	// chunk is the page size of lists. Only drain has a flag for it.
	chunk int64
}

// mount gives the cobra command the shared flags, completion, and an end by signal.
func (c *command) mount(cmd *cobra.Command, run func(ctx context.Context, args []string) error) *cobra.Command {
	var config config
	config.addFlags(cmd.Flags())
	if c.connect == nil {
		c.connect = config.client
	}
	cmd.Flags().StringVarP(&c.selector, "selector", "l", "", "Label selector of the nodes, instead of their names.")
	c.dryRun.addFlag(cmd.Flags())
	cmd.DisableFlagsInUseLine = true
	cmd.SilenceUsage = true
	cmd.ValidArgsFunction = c.complete
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 && !cmd.Flags().Changed("selector") {
			return fmt.Errorf("%s needs the name of a node, or --selector: see %s --help", cmd.Name(), cmd.CommandPath())
		}
		if len(args) > 0 && c.selector != "" {
			return fmt.Errorf("%s takes names of nodes or --selector, not both", cmd.Name())
		}
		ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
		defer stop()
		err := run(ctx, args)
		if err != nil && ctx.Err() != nil {
			return fmt.Errorf("%s stopped, %s: %w", cmd.Name(), why(ctx), err)
		}
		return err
	}
	return cmd
}

// why names the signal, unless whoever mounted the command was faster to hear it. The signal says of itself that it is
// context.Canceled, so the texts are compared.
func why(ctx context.Context) string {
	if cause := context.Cause(ctx).Error(); cause != context.Canceled.Error() {
		return cause
	}
	return "told to end"
}
