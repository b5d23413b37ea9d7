// SPDX-License-Identifier: Apache-2.0

package show

import (
	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"

	"moult.dev/moult/internal/cli/config"
	"moult.dev/moult/internal/cli/eds/object"
	"moult.dev/moult/internal/cli/source"
	"moult.dev/moult/internal/cli/target"
	"moult.dev/moult/internal/cli/text"
)

// command is one call of a verb.
type command struct {
	genericiooptions.IOStreams
	clock  clock.Clock
	config config.Config

	allNamespaces, watch bool
	output               text.Output
}

// NewCommands makes get, get-ers, pods and history. Which cluster, and which namespace, is the config's to say.
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

// mount gives the cobra command what the verbs share. Its argument is a name of this kind.
func (c *command) mount(cmd *cobra.Command, k *target.Kind) {
	cmd.SilenceUsage = true
	cmd.ValidArgsFunction = source.Complete(c.config, &c.allNamespaces, k)
	c.output.AddFlag(cmd, formats...)
}

// addWatch adds --watch.
func (c *command) addWatch(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&c.watch, "watch", "w", false, "Go on to show what changes, until Ctrl-C.")
}

// connect makes a client, and reads the name of the ExtendedDaemonSet that is meant.
func (c *command) connect(args []string) (*object.Client, string, error) {
	name, err := object.Name(target.DaemonSet, args[0])
	if err != nil {
		return nil, "", err
	}
	client, err := object.Connect(c.config)
	return client, name, err
}
