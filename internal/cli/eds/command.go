// SPDX-License-Identifier: Apache-2.0

// Package eds is `kubectl eds`: the verbs of ExtendedDaemonSet's plugin, with its words, columns and effects, and more.
//
//	get.go, pods.go     what it shows, once or with each change
//	print.go            tables, and formats for programs
//	steer.go, canary.go verbs that write to one object, with its resourceVersion as precondition, and print what they wrote
//	rollback.go         the same, for the template of an earlier revision
//	wait.go, judge.go   wait until the pods are up to date, or fail
//	diff.go             how the canary's revision differs from the active one
//	revisions.go        the ExtendedDaemonSetReplicaSets of an ExtendedDaemonSet
package eds

import (
	"context"
	"errors"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"

	"moult.dev/moult/internal/cli/source"
)

// command is what all verbs have.
type command struct {
	genericiooptions.IOStreams
	clock   clock.Clock
	cluster source.Config
}

// NewCommand makes the command with all its verbs. Which cluster, and which namespace, is the config's to say.
func NewCommand(clk clock.WithTicker, streams genericiooptions.IOStreams, cluster source.Config) *cobra.Command {
	c := &command{streams, clk, cluster}
	root := newRoot("kubectl-eds", "See and steer ExtendedDaemonSets")
	root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl eds"}
	canary := &cobra.Command{Use: "canary", Short: "See and steer the canary of an ExtendedDaemonSet"}
	canary.AddCommand(c.newCanaryPods())
	for i := range canaryVerbs {
		canary.AddCommand(c.newVerb(&canaryVerbs[i], "canary "))
	}
	root.AddCommand(canary, c.newGet(), c.newGetERS(), c.newPods(), c.newHistory(), c.newDiff(), c.newWait(), c.newRollback())
	for i := range verbs {
		root.AddCommand(c.newVerb(&verbs[i], ""))
	}
	return root
}

// NewCheck makes check-eds, whose one verb, upgrade, is wait.
func NewCheck(clk clock.WithTicker, streams genericiooptions.IOStreams, cluster source.Config) *cobra.Command {
	root := newRoot("check-eds", "Wait until ExtendedDaemonSets are up to date")
	upgrade := (&command{streams, clk, cluster}).newWait()
	upgrade.Use = "upgrade [ExtendedDaemonSet name]"
	upgrade.Example = `  check-eds upgrade agent -n monitoring`
	root.AddCommand(upgrade)
	return root
}

func newRoot(name, short string) *cobra.Command {
	return &cobra.Command{Use: name, Short: short, SilenceUsage: true, SilenceErrors: true}
}

// one completes a verb whose one argument is the name of an ExtendedDaemonSet.
func (c *command) one(cmd *cobra.Command, run func(ctx context.Context, src *source.Source, name string) error) *cobra.Command {
	if cmd.Args == nil {
		cmd.Args = oneName
	}
	return source.Verb(c.cluster, cmd, []*source.Kind{source.DaemonSet}, func(ctx context.Context, src *source.Source, named source.Target) error {
		return run(ctx, src, named.Name)
	})
}

func oneName(_ *cobra.Command, args []string) error {
	switch len(args) {
	case 0:
		return errors.New("the extendeddaemonset name is required")
	case 1:
		return nil
	}
	return errors.New("only one extendeddaemonset name is allowed")
}
