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

func newWhy(c command) *cobra.Command {
	var output flags.Output
	cmd := help("why NODE",
		`Say why a node is changed, or is not: every check of every rollout, and what holds the node.
While the node waits, its place in the order and every check follow: ✓ passed, ✗ not passed, with the reason.`,
		`  kubectl moult why worker-7
  kubectl moult why worker-7 -o json | jq '.rollouts[].checks[] | select(.reason)'`)
	output.Add(cmd, flags.Wide, flags.JSON, flags.YAML)
	return source.Verb(c.cluster, cmd, []*source.Kind{source.Node}, func(ctx context.Context, src *source.Source, node source.Target) error {
		return c.why(ctx, src, node, &output)
	})
}

func (c *command) why(ctx context.Context, src *source.Source, node source.Target, output *flags.Output) error {
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
	if output.Structured() {
		return output.Print(c.Out, struct {
			identified
			*view.Why
		}{identify("NodeExplanation"), &w})
	}
	return c.print(explain(&w, now))
}
