// SPDX-License-Identifier: Apache-2.0

// Package eds is `kubectl eds`: the verbs of ExtendedDaemonSet's plugin, with its words, columns and effects, and more.
package eds

import (
	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"

	"moult.dev/moult/internal/cli/config"
	"moult.dev/moult/internal/cli/eds/diff"
	"moult.dev/moult/internal/cli/eds/show"
	"moult.dev/moult/internal/cli/eds/steer"
	"moult.dev/moult/internal/cli/eds/wait"
)

// NewCommand makes the command with all its verbs. Which cluster, and which namespace, is the config's to say.
func NewCommand(clk clock.WithTicker, streams genericiooptions.IOStreams, cluster config.Config) *cobra.Command {
	root := &cobra.Command{
		Use:           "kubectl-eds",
		Short:         "See and steer ExtendedDaemonSets",
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl eds"},
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	canary := &cobra.Command{
		Use:   "canary",
		Short: "See and steer the canary of an ExtendedDaemonSet",
	}
	canary.AddCommand(show.NewCanaryPods(clk, streams, cluster))
	canary.AddCommand(steer.NewCanaryCommands(clk, streams, cluster)...)
	root.AddCommand(show.NewCommands(clk, streams, cluster)...)
	root.AddCommand(canary, diff.NewCommand(streams, cluster), wait.NewCommand(clk, streams, cluster))
	root.AddCommand(steer.NewCommands(clk, streams, cluster)...)
	return root
}

// NewCheck makes check-eds, whose one verb, upgrade, is wait.
func NewCheck(clk clock.WithTicker, streams genericiooptions.IOStreams, cluster config.Config) *cobra.Command {
	root := &cobra.Command{
		Use:           "check-eds",
		Short:         "Wait until ExtendedDaemonSets are up to date",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	upgrade := wait.NewCommand(clk, streams, cluster)
	upgrade.Use = "upgrade [ExtendedDaemonSet name]"
	upgrade.Example = `  check-eds upgrade agent -n monitoring`
	root.AddCommand(upgrade)
	return root
}
