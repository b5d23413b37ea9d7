// SPDX-License-Identifier: Apache-2.0

// Package steer is how people steer ExtendedDaemonSets: `kubectl eds canary validate`, pause, unpause, fail and reset,
// pause-rolling-update, freeze-rollout and their opposites, and rollback. Each writes to one object, with its resourceVersion
// as precondition, and says what it wrote in the words that scripts know.
package steer

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/internal/cli/config"
	"moult.dev/moult/internal/cli/eds/object"
	"moult.dev/moult/internal/cli/source"
	"moult.dev/moult/internal/cli/target"
)

// command is one call of a verb.
type command struct {
	genericiooptions.IOStreams
	clock  clock.PassiveClock
	config config.Config

	client *object.Client
}

// NewCommands makes pause-rolling-update, freeze-rollout, their opposites, and rollback. Which cluster, and which namespace,
// is the config's to say.
func NewCommands(clk clock.PassiveClock, streams genericiooptions.IOStreams, cluster config.Config) []*cobra.Command {
	return mount(clk, streams, cluster, newPauseRollingUpdate, newUnpauseRollingUpdate, newFreeze, newUnfreeze, newRollback)
}

// NewCanaryCommands makes those of `canary`: validate, pause, unpause, fail and reset.
func NewCanaryCommands(clk clock.PassiveClock, streams genericiooptions.IOStreams, cluster config.Config) []*cobra.Command {
	return mount(clk, streams, cluster, newValidate, newPause, newUnpause, newFail, newReset)
}

// verb is a command, and what it does with the ExtendedDaemonSet of this name.
type verb func(*command) (*cobra.Command, func(ctx context.Context, name string) error)

func mount(clk clock.PassiveClock, streams genericiooptions.IOStreams, cluster config.Config, verbs ...verb) []*cobra.Command {
	var commands []*cobra.Command
	for _, verb := range verbs {
		c := &command{IOStreams: streams, clock: clk, config: cluster}
		cmd, run := verb(c)
		cmd.Use += " [ExtendedDaemonSet name]"
		cmd.Args = object.OneName
		cmd.SilenceUsage = true
		cmd.ValidArgsFunction = source.Complete(cluster, nil, target.DaemonSet)
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			name, err := object.Name(target.DaemonSet, args[0])
			if err != nil {
				return err
			}
			if c.client, err = object.Connect(cluster); err != nil {
				return err
			}
			return run(cmd.Context(), name)
		}
		commands = append(commands, cmd)
	}
	return commands
}

// sayOf tells what was done to the ExtendedDaemonSet.
func (c *command) sayOf(name, done string) {
	fmt.Fprintf(c.Out, "ExtendedDaemonset '%s/%s' %s\n", c.client.Namespace, name, done)
}

func (c *command) now() metav1.Time { return metav1.Time{Time: c.clock.Now()} }

// canary is the name of the canary's ExtendedDaemonSetReplicaSet, or why there is none.
func canary(eds *edsv1.ExtendedDaemonSet) (string, error) {
	switch {
	case eds.Spec.Strategy.Canary == nil:
		return "", errors.New("the ExtendedDaemonset does not have a canary strategy")
	case eds.Status.Canary == nil:
		return "", errors.New("the ExtendedDaemonset does not have an active canary deployment")
	}
	return eds.Status.Canary.ReplicaSet, nil
}
