// SPDX-License-Identifier: Apache-2.0

// Package show is what `kubectl eds` shows: get, get-ers, pods, canary pods and history, once or with each change.
//
//	object, pods, nodes ──▶ rows ──▶ table, -o json|yaml|wide|name      once
//	feed                ──▶ rows ──▶ those that are new or different    --watch
package show

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/internal/cli/config"
	"moult.dev/moult/internal/cli/eds/object"
	"moult.dev/moult/internal/cli/feed"
	"moult.dev/moult/internal/cli/flags"
)

// command is one call of a verb.
type command struct {
	genericiooptions.IOStreams
	clock  clock.Clock
	config config.Config

	allNamespaces, watch bool
	output               flags.Output
}

// NewCommands makes get, get-ers, pods and history.
func NewCommands(clk clock.Clock, streams genericiooptions.IOStreams, cluster config.Config) []*cobra.Command {
	var commands []*cobra.Command
	for _, verb := range []func(*command) *cobra.Command{newGet, newGetERS, newPods, newHistory} {
		commands = append(commands, verb(&command{IOStreams: streams, clock: clk, config: cluster}))
	}
	return commands
}

// NewCanaryPods makes `canary pods`.
func NewCanaryPods(clk clock.Clock, streams genericiooptions.IOStreams, cluster config.Config) *cobra.Command {
	return newCanaryPods(&command{IOStreams: streams, clock: clk, config: cluster})
}

// completeOne gives the cobra command what those verbs share that are about one ExtendedDaemonSet.
func (c *command) completeOne(
	cmd *cobra.Command, run func(context.Context, *object.Client, *edsv1.ExtendedDaemonSet) error,
) *cobra.Command {
	c.addOutput(cmd)
	return object.Complete(c.config, cmd, func(ctx context.Context, client *object.Client, name string) error {
		eds, err := client.DaemonSet(ctx, name)
		if err != nil {
			return err
		}
		return run(ctx, client, eds)
	})
}

func (c *command) addOutput(cmd *cobra.Command) {
	c.output.Add(cmd, flags.Wide, flags.JSON, flags.YAML, flags.Name)
}

func (c *command) addWatch(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&c.watch, "watch", "w", false, "Go on to show what changes, until Ctrl-C.")
}

// follow writes rows when they change, until the context ends.
func (c *command) follow(ctx context.Context, f *feed.Feed, p *printer, read func() ([]row, error)) error {
	ended := f.Run(ctx, c.clock, nil, func() (bool, error) {
		rows, err := read()
		if err != nil {
			return false, err
		}
		slices.SortFunc(rows, func(a, b row) int {
			return strings.Compare(a.namespace+"\x00"+a.name, b.namespace+"\x00"+b.name)
		})
		return false, p.changes(rows, c.clock.Now())
	})
	if ctx.Err() == nil {
		return ended
	}
	return nil
}
