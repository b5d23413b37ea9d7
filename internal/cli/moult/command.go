// SPDX-License-Identifier: Apache-2.0

// Package moult is `kubectl moult`: it shows rollouts and steers them.
//
//	status.go     the state of rollouts, once or as a live view
//	  source ──▶ package view ──▶ frame: a header and a bar a rollout, a line a node ──▶ out     once
//	  feed ──▶ source ──▶ view ─┬▶ frame, cut to the terminal's size ──▶ live            in place, on a terminal
//	                            └▶ what is new ──▶ journal                                line by line, elsewhere
//	why.go        everything that is known about why one node is changed, or is not; explain.go draws it, advise.go says what to do
//	preview.go    what a rollout would do; subject.go reads manifests, drains.go looks at pods, foresee.go draws it
//	ui.go         the same as web pages; pages.go reads what package dashboard shows
//	uninstall.go  what Moult has left on nodes and in rollouts
//	steer.go      pause, resume, approve and retry: each writes one field or annotation of one object
package moult

import (
	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"

	"moult.dev/moult/internal/cli/source"
)

// command is the common part of all verbs.
type command struct {
	genericiooptions.IOStreams
	clock   clock.WithTicker
	cluster source.Config
}

// NewCommand makes the command with all its verbs. The config says which cluster and namespace.
func NewCommand(clk clock.WithTicker, streams genericiooptions.IOStreams, cluster source.Config) *cobra.Command {
	root := &cobra.Command{
		Use:           "kubectl-moult",
		Short:         "See and steer rolling changes across the nodes of a cluster",
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl moult"},
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	c := command{streams, clk, cluster}
	root.AddCommand(newStatus(c), newWhy(c), newPreview(c), newUI(c), newUninstallCheck(c))
	for _, verb := range []func(*steerCommand) *cobra.Command{newPause, newResume, newApprove, newRetry} {
		root.AddCommand(verb(&steerCommand{command: c}))
	}
	return root
}
