// SPDX-License-Identifier: Apache-2.0

package moult

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/internal/cli/flags"
	"moult.dev/moult/internal/cli/source"
	"moult.dev/moult/internal/cli/text"
	"moult.dev/moult/internal/view"
)

// whyCommand is one call of why.
type whyCommand struct {
	command
	output flags.Output
}

func newWhy(base command) *cobra.Command {
	c := &whyCommand{command: base}
	cmd := &cobra.Command{
		Use:   "why NODE",
		Short: "Say why a node is changed, or is not: every check of every rollout, and what holds the node",
		Long: `Say why a node is changed, or is not.

Shown are the node itself (whether it is ready, who has cordoned or claimed it, what was evicted from it), and every
rollout that selects it, of all namespaces: the node's state there, since when, and if it waits, its place in the order and
every check that it must pass: ✓ passed, ✗ not passed, with the reason and what it waits for. All checks are asked, not only
the first that says no. For an ExtendedDaemonSet this includes its pod on the node, and what its canary waits for. For a node whose
host is updated by an agent (NodeRollout) it includes what the host runs, what it has to offer, and what it does. The NodeDisruptionBudgets
that select the node come last. -o wide shows the same.`,
		Example: `  kubectl moult why worker-7
  kubectl moult why worker-7 -o json | jq '.rollouts[].checks[] | select(.reason)'`,
	}
	c.output.Add(cmd, flags.Wide, flags.JSON, flags.YAML)
	return source.Verb(c.cluster, cmd, []*source.Kind{source.Node}, func(ctx context.Context, src *source.Source, node source.Target) error {
		return c.explain(ctx, src, node.Name)
	})
}

func (c *whyCommand) explain(ctx context.Context, src *source.Source, name string) error {
	nodes, err := src.ReadNodes(ctx)
	switch {
	case err != nil:
		return err
	case nodes == nil:
		return fmt.Errorf("nodes can't be listed, and without them there is nothing to say about node %q", name)
	case !slices.ContainsFunc(nodes, func(n corev1.Node) bool { return n.Name == name }):
		return notFound(name, nodes)
	}
	src.Namespace = "" // Rollouts of any namespace may select the node.
	found, err := src.ReadRollouts(ctx, source.Target{})
	if err != nil {
		return err
	}
	budgets, err := src.ReadBudgets(ctx)
	if err != nil {
		return err
	}
	now := c.clock.Now()
	cluster := view.See(found.Plans, nodes, budgets, now)
	cluster.OwnNode(src.ReadOperatorNode(ctx))
	daemons, err := src.ReadDaemons(ctx, found.DaemonSets, name, func(eds *edsv1.ExtendedDaemonSet) source.Reach {
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
	if err := src.ReadPodGates(ctx, cluster, name); err != nil {
		return err
	}
	for _, note := range src.Notes {
		fmt.Fprintln(c.ErrOut, note)
	}
	w, _ := cluster.Daemons(daemons).NodeRollouts(found.NodeRollouts).Why(name)
	if c.output.Structured() {
		return c.output.Print(c.Out, w)
	}
	return explain(&w, now).Print(c.Out)
}

// few is how many names a list holds.
const few = 3

// notFound says that there is no such node, and lists nodes with similar names.
func notFound(name string, nodes []corev1.Node) error {
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
	return fmt.Errorf("there is no node %q; did you mean %s?", name, text.Or(like))
}
