// SPDX-License-Identifier: Apache-2.0

// Package eds is `kubectl eds`: the verbs of ExtendedDaemonSet's plugin with their texts, columns and effects, and more verbs.
//
//	get.go, pods.go     show objects, once or whenever they change
//	print.go            tables, and formats for programs
//	steer.go, canary.go change one object, with its resourceVersion as precondition
//	rollback.go         read the revisions of an ExtendedDaemonSet, and write the template of an earlier one
//	wait.go             wait until the pods are up to date, or fail
//	diff.go             compare the canary's revision with the active one
package eds

import (
	"context"
	"errors"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/internal/cli/source"
)

// command is what all verbs share.
type command struct {
	genericiooptions.IOStreams
	clock   clock.Clock
	cluster source.Config
}

// NewCommand returns the command with all its verbs, for this cluster and namespace.
func NewCommand(clk clock.WithTicker, streams genericiooptions.IOStreams, cluster source.Config) *cobra.Command {
	c := &command{streams, clk, cluster}
	root := newRoot("kubectl-eds", "Show and steer ExtendedDaemonSets")
	root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl eds"}
	canary := &cobra.Command{
		Use: "canary", Short: "Show and steer the canary of an ExtendedDaemonSet",
		Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	canary.AddCommand(c.newCanaryPods())
	root.AddCommand(canary, c.newGet(), c.newGetERS(), c.newPods(), c.newHistory(), c.newDiff(), c.newWait(), c.newRollback())
	for i := range verbs {
		root.AddCommand(c.newVerb(&verbs[i], ""))
	}
	for i := range canaryVerbs {
		canary.AddCommand(c.newVerb(&canaryVerbs[i], "canary "))
	}
	return root
}

// NewCheck returns check-eds. Its one verb, upgrade, is wait.
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

// one completes a verb with one argument, the name of an ExtendedDaemonSet.
func (c *command) one(cmd *cobra.Command, run func(context.Context, *source.Source, *edsv1.ExtendedDaemonSet) error) *cobra.Command {
	cmd.Args = oneName
	return source.VerbOn(c.cluster, cmd, []*source.Kind{source.DaemonSet}, func(ctx context.Context, src *source.Source, o source.Object) error {
		return run(ctx, src, source.As[edsv1.ExtendedDaemonSet](o.Unstructured))
	})
}

// oneName has the words of Datadog's plugin.
func oneName(_ *cobra.Command, args []string) error {
	switch len(args) {
	case 0:
		return errors.New("the extendeddaemonset name is required")
	case 1:
		return nil
	}
	return errors.New("only one extendeddaemonset name is allowed")
}
