// SPDX-License-Identifier: Apache-2.0

// Package steer is how people steer rollouts: `kubectl moult pause`, resume, approve and retry. Each writes one field or
// annotation of one object; anything else that writes it has the same effect.
package steer

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"

	"moult.dev/moult/internal/cli/flags"
	"moult.dev/moult/internal/cli/source"
)

// command is one call of a verb.
type command struct {
	genericiooptions.IOStreams
	clock  clock.PassiveClock
	config source.Config
	dryRun flags.DryRun
	src    *source.Source
}

// NewCommands makes the commands.
func NewCommands(clk clock.PassiveClock, streams genericiooptions.IOStreams, cluster source.Config) []*cobra.Command {
	var commands []*cobra.Command
	for _, verb := range []func(*command) *cobra.Command{newPause, newResume, newApprove, newRetry} {
		commands = append(commands, verb(&command{IOStreams: streams, clock: clk, config: cluster}))
	}
	return commands
}

// complete gives the cobra command what the verbs share. Its argument is an object of these kinds.
func (c *command) complete(cmd *cobra.Command, kinds []*source.Kind, run func(ctx context.Context, named source.Target) error) *cobra.Command {
	c.dryRun.Add(cmd)
	return source.Verb(c.config, cmd, kinds, func(ctx context.Context, src *source.Source, named source.Target) error {
		c.src = src
		return run(ctx, named)
	})
}

// write changes an object. change returns nil when there is nothing to change: then changed is false.
func (c *command) write(
	ctx context.Context, k *source.Kind, name string, change func(*unstructured.Unstructured) (*source.Change, error),
) (changed bool, err error) {
	o := metav1.PatchOptions{FieldManager: "kubectl-moult", DryRun: c.dryRun.Request()}
	err = c.src.Write(ctx, k, name, o, func(u *unstructured.Unstructured) (*source.Change, error) {
		what, err := change(u)
		if changed = what != nil; c.dryRun.Client() {
			what = nil
		}
		return what, err
	})
	return changed, err
}

// say prints what was done to an object, as kubectl does.
func (c *command) say(kind *source.Kind, name, done string) {
	fmt.Fprintf(c.Out, "%s %s%s\n", kind.String(name), done, c.dryRun.Suffix())
}

// stamp is a value that an annotation has not had before.
func (c *command) stamp() string { return c.clock.Now().UTC().Format(time.RFC3339Nano) }
