// SPDX-License-Identifier: Apache-2.0

// Package why is `kubectl moult why`: everything that is known about why one node is changed, or is not.
package why

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/internal/cli/config"
	"moult.dev/moult/internal/cli/source"
	"moult.dev/moult/internal/cli/target"
	"moult.dev/moult/internal/cli/text"
	"moult.dev/moult/internal/view"
)

// command is one call of why.
type command struct {
	genericiooptions.IOStreams
	clock  clock.PassiveClock
	config config.Config
	output text.Output
}

// NewCommand makes the command. Which cluster is the config's to say.
func NewCommand(clk clock.PassiveClock, streams genericiooptions.IOStreams, cluster config.Config) *cobra.Command {
	c := &command{IOStreams: streams, clock: clk, config: cluster}
	cmd := &cobra.Command{
		Use:   "why NODE",
		Short: "Say why a node is changed, or is not: every check of every rollout, and what holds the node",
		Long: `Say why a node is changed, or is not.

Shown are the node itself (whether it is ready, who has cordoned or claimed it, what was evicted from it), and for every
rollout that selects it, of all namespaces: how it stands there, since when, and if it waits, its place in the order and
every check that it must pass: ✓ passed, ✗ not passed, with the reason and what it waits for. All checks are asked, not only
the first that says no. Of an ExtendedDaemonSet its pod on the node stands there too, and what its canary waits for. Of a node whose
host is updated by an agent (NodeRollout) it says what the host runs, what it has to offer, what it is to do and how that stands. At last
stand the NodeDisruptionBudgets that select the node. There is no more to say with -o wide.`,
		Example: `  kubectl moult why worker-7
  kubectl moult why worker-7 -o json | jq '.rollouts[].checks[] | select(.reason)'`,
		Args:              cobra.ExactArgs(1),
		SilenceUsage:      true,
		ValidArgsFunction: source.Complete(cluster, nil, target.Node),
	}
	c.output.AddFlag(cmd, text.Wide, text.JSON, text.YAML)
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return c.run(cmd.Context(), args[0]) }
	return cmd
}

func (c *command) run(ctx context.Context, arg string) error {
	node, err := target.Parse(arg, target.Node)
	if err != nil {
		return err
	}
	rest, err := c.config.REST()
	if err != nil {
		return err
	}
	src, err := source.Connect(rest)
	if err != nil {
		return err
	}
	return c.explain(ctx, src, node.Name)
}

func (c *command) explain(ctx context.Context, src *source.Source, name string) error {
	nodes, err := src.ReadNodes(ctx)
	switch {
	case err != nil:
		return err
	case nodes == nil:
		return fmt.Errorf("nodes can't be listed, and without them there is nothing to say about node %q", name)
	case !slices.ContainsFunc(nodes, func(n corev1.Node) bool { return n.Name == name }):
		return unknown(name, nodes)
	}
	found, err := c.rollouts(ctx, src)
	if err != nil {
		return err
	}
	budgets, note, err := src.ReadBudgets(ctx)
	if err != nil {
		return err
	}
	now := c.clock.Now()
	cluster := view.See(found.Plans, nodes, budgets, now)
	own, noteOwn := src.ReadOperatorNode(ctx)
	cluster.OwnNode(own)
	daemons, noteDaemons, err := src.ReadDaemons(ctx, found.DaemonSets, name, func(eds *edsv1.ExtendedDaemonSet) source.Reach {
		switch {
		case !cluster.SelectsNode(eds, name):
			return source.NoPods
		case view.AtRest(eds):
			return source.PodsOnNode
		}
		return source.AllPods
	})
	if err != nil {
		return err
	}
	noteGates, err := readGates(ctx, src, cluster, name)
	if err != nil {
		return err
	}
	for _, note := range append(found.Notes, note, noteDaemons, noteGates, noteOwn) {
		if note != "" {
			fmt.Fprintln(c.ErrOut, note)
		}
	}
	w, _ := cluster.Daemons(daemons).NodeRollouts(found.NodeRollouts).Why(name)
	if c.output.Structured() {
		return c.output.Print(c.Out, w)
	}
	_, err = c.Out.Write(draw(&w, now).Text(0, text.LookAt(c.Out).Colour))
	return err
}

// readGates reads what gates go by that no status lists: the pods on the node, and where that matters their namespaces. Where these can't be
// listed, a note says so.
func readGates(ctx context.Context, src *source.Source, cluster *view.Cluster, node string) (note string, err error) {
	pods, namespaces := cluster.PodGates(node)
	if !pods {
		return "", nil
	}
	gated, note, err := src.ReadGated(ctx, node, namespaces)
	if err == nil {
		cluster.PodsOn(node, gated.Pods, gated.Namespaces)
	}
	return note, err
}

// rollouts are those of all namespaces, or where those may not be seen, of one.
func (c *command) rollouts(ctx context.Context, src *source.Source) (source.Rollouts, error) {
	var all source.Rollouts
	var hidden []source.Hidden
	for _, k := range target.Rollouts {
		found, err := src.ReadRollouts(ctx, source.Scope{Kind: k})
		if apierrors.IsForbidden(err) && k.Namespaced {
			namespace, wrong := c.config.Namespace()
			if wrong != nil {
				return all, wrong
			}
			var refused error
			if found, refused = src.ReadRollouts(ctx, source.Scope{Namespace: namespace, Kind: k}); refused == nil {
				err = nil
				found.Notes = append(found.Notes, fmt.Sprintf("%ss of all namespaces can't be listed: only those of namespace %s are looked at.", k.Name, namespace))
			}
		}
		switch {
		case err == nil:
		case !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err):
			return all, err
		default:
			hidden = append(hidden, source.Hidden{Kind: k, Err: err})
		}
		all.Plans, all.DaemonSets = append(all.Plans, found.Plans...), append(all.DaemonSets, found.DaemonSets...)
		all.NodeRollouts, all.Notes = append(all.NodeRollouts, found.NodeRollouts...), append(all.Notes, found.Notes...)
	}
	switch {
	case len(hidden) == len(target.Rollouts):
		return all, hidden[0].Err
	case len(hidden) > 0:
		all.Notes = append(all.Notes, source.Unseen(hidden...))
	}
	return all, nil
}

// unknown says that there is no such node, and which there are of a name like it.
func unknown(name string, nodes []corev1.Node) error {
	var like []string
	for i := range nodes {
		if strings.Contains(nodes[i].Name, name) || nodes[i].Labels[corev1.LabelHostname] == name {
			like = append(like, nodes[i].Name)
		}
	}
	slices.Sort(like)
	switch {
	case len(like) == 0:
		return fmt.Errorf("there is no node %q among %d nodes", name, len(nodes))
	case len(like) > few:
		return fmt.Errorf("there is no node %q, but %d whose name contains that, such as %s", name, len(like), strings.Join(like[:few], ", "))
	}
	return fmt.Errorf("there is no node %q; did you mean %s?", name, strings.Join(like, " or "))
}

// few is how many names a list holds.
const few = 3
