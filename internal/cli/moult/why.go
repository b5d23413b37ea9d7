// SPDX-License-Identifier: Apache-2.0

package moult

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"moult.dev/moult/internal/cli/flags"
	"moult.dev/moult/internal/cli/source"
	"moult.dev/moult/internal/view"
)

// whyCommand is one call of why.
type whyCommand struct {
	command
	output flags.Output
}

func newWhy(base command) *cobra.Command {
	c := &whyCommand{command: base}
	cmd := help("why NODE",
		`Say why a node is changed, or is not: every check of every rollout, and what holds the node.
While the node waits, its place in the order and every check follow: ✓ passed, ✗ not passed, with the reason.`,
		`  kubectl moult why worker-7
  kubectl moult why worker-7 -o json | jq '.rollouts[].checks[] | select(.reason)'`)
	c.output.Add(cmd, flags.Wide, flags.JSON, flags.YAML)
	return source.Verb(c.cluster, cmd, []*source.Kind{source.Node}, c.explain)
}

func (c *whyCommand) explain(ctx context.Context, src *source.Source, node source.Target) error {
	src.Namespace = "" // Rollouts of any namespace may select the node.
	found, err := src.ReadRollouts(ctx, source.Target{})
	if err != nil {
		return err
	}
	now := c.clock.Now()
	cluster, err := src.ReadCluster(ctx, found, nil, now)
	if err != nil {
		return err
	}
	if err := src.ReadChecks(ctx, cluster, node.Name); err != nil {
		return err
	}
	w, ok := cluster.Why(node.Name)
	if !ok {
		return fmt.Errorf("there is no node %q", node.Name)
	}
	c.note(src)
	if c.output.Structured() {
		return c.output.Print(c.Out, struct {
			identified
			*view.Why
		}{identify("NodeExplanation"), &w})
	}
	return c.print(explain(&w, now))
}
