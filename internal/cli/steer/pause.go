// SPDX-License-Identifier: Apache-2.0

package steer

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"moult.dev/moult/internal/cli/target"
)

func newPause(c *command) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "pause ROLLOUT",
		Short: "Let a rollout start no more nodes, or a budget give none away",
		Long: `Let a rollout start no more nodes: sets spec.strategy.paused. What was started goes on.

ndb/NAME pauses a NodeDisruptionBudget (spec.paused): no rollout may take any of the nodes that it selects.`,
		Example: `  kubectl moult pause k3s-agent -n system-upgrade
  kubectl moult pause ndb/production`,
	}
	cmd = c.mount(cmd, func(ctx context.Context, arg string) error { return c.setPaused(ctx, arg, true) }, pausable...)
	c.dryRun.complete(cmd)
	return cmd
}

func newResume(c *command) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "resume ROLLOUT",
		Short: "Let a paused rollout, or a paused budget, go on",
		Long: `Let a paused rollout go on: takes spec.strategy.paused away, and spec.strategy with it if it holds nothing else.

ndb/NAME resumes a NodeDisruptionBudget. What else keeps nodes waiting goes on doing so: kubectl moult why NODE says it.`,
		Example: `  kubectl moult resume k3s-agent -n system-upgrade
  kubectl moult resume ndb/production`,
	}
	cmd = c.mount(cmd, func(ctx context.Context, arg string) error { return c.setPaused(ctx, arg, false) }, pausable...)
	c.dryRun.complete(cmd)
	return cmd
}

// pausable are the kinds that can be paused.
var pausable = append(append([]*target.Kind{}, target.Rollouts...), target.Budget)

func (c *command) setPaused(ctx context.Context, arg string, paused bool) error {
	named, err := target.Parse(arg, pausable...)
	if err != nil {
		return err
	}
	k := named.Kind
	if k == nil {
		k = target.Rollouts[0]
	}
	o, err := c.get(ctx, k, named.Name)
	if err != nil {
		return err
	}
	changed, err := c.write(ctx, k, o, func(o *unstructured.Unstructured) map[string]any { return pausing(k, o, paused) })
	switch {
	case err != nil:
		return err
	case !changed && paused:
		fmt.Fprintf(c.Out, "%s is paused already\n", k.String(named.Name))
	case !changed:
		fmt.Fprintf(c.Out, "%s is not paused\n", k.String(named.Name))
	case paused:
		c.say(k, named.Name, "paused")
	default:
		c.say(k, named.Name, "resumed")
	}
	return nil
}

// pausing is the patch that pauses or resumes; nil when there is nothing to change.
func pausing(k *target.Kind, o *unstructured.Unstructured, paused bool) map[string]any {
	now, _, err := unstructured.NestedBool(o.Object, k.Paused...)
	switch {
	case err == nil && now == paused:
		return nil
	case paused:
		return nested(k.Paused, true)
	}
	// A strategy, even an empty one, means more than none: one that pausing has made goes with it.
	for path := k.Paused; ; path = path[:len(path)-1] {
		parent, _, err := unstructured.NestedMap(o.Object, path[:len(path)-1]...)
		if err != nil || len(path) == 2 || len(parent) > 1 {
			return nested(path, nil)
		}
	}
}
