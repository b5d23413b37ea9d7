// SPDX-License-Identifier: Apache-2.0

// Package steer is how people steer rollouts: `kubectl moult pause`, resume, approve and retry. Each writes one field or
// annotation of one object, which says the same to anybody who writes it in another way.
package steer

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"

	"moult.dev/moult/internal/cli/config"
	"moult.dev/moult/internal/cli/source"
	"moult.dev/moult/internal/cli/target"
)

// command is one call of a verb.
type command struct {
	genericiooptions.IOStreams
	clock  clock.PassiveClock
	config config.Config
	dryRun dryRun

	src       *source.Source
	namespace string
}

// NewCommands makes the commands. Which cluster, and which namespace, is the config's to say.
func NewCommands(clk clock.PassiveClock, streams genericiooptions.IOStreams, cluster config.Config) []*cobra.Command {
	var commands []*cobra.Command
	for _, verb := range []func(*command) *cobra.Command{newPause, newResume, newApprove, newRetry} {
		commands = append(commands, verb(&command{IOStreams: streams, clock: clk, config: cluster}))
	}
	return commands
}

// mount gives the cobra command what the verbs share.
func (c *command) mount(cmd *cobra.Command, run func(ctx context.Context, arg string) error, kinds ...*target.Kind) *cobra.Command {
	cmd.Args = cobra.ExactArgs(1)
	cmd.SilenceUsage = true
	cmd.ValidArgsFunction = source.Complete(c.config, nil, kinds...)
	c.dryRun.addFlag(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := c.connect(); err != nil {
			return err
		}
		return run(cmd.Context(), args[0])
	}
	return cmd
}

func (c *command) connect() (err error) {
	if c.src != nil {
		return nil
	}
	if c.namespace, err = c.config.Namespace(); err != nil {
		return err
	}
	rest, err := c.config.REST()
	if err != nil {
		return err
	}
	c.src, err = source.Connect(rest)
	return err
}

// say tells what was done to an object, as kubectl does.
func (c *command) say(kind *target.Kind, name, done string) {
	fmt.Fprintf(c.Out, "%s %s%s\n", kind.String(name), done, c.dryRun.suffix())
}

// stamp is a value that an annotation has not had before.
func (c *command) stamp() string { return c.clock.Now().UTC().Format(time.RFC3339Nano) }
