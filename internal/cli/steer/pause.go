// SPDX-License-Identifier: Apache-2.0

package steer

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/internal/cli/target"
)

func newPause(c *command) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "pause ROLLOUT",
		Short: "Let a rollout start no more nodes, or a budget give none away",
		Long: `Let a rollout start no more nodes: sets spec.strategy.paused. What was started goes on.

Of an ExtendedDaemonSet no outdated pod is replaced any more; pods are still made on nodes that have none, and its canary goes on.

A NodeRollout is nr/NAME, and in no namespace.

ndb/NAME pauses a NodeDisruptionBudget (spec.paused): no rollout may take any of the nodes that it selects.`,
		Example: `  kubectl moult pause k3s-agent -n system-upgrade
  kubectl moult pause eds/node-exporter -n monitoring
  kubectl moult pause nr/bottlerocket
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
		Long: `Let a paused rollout go on: takes spec.strategy.paused away, and of a Plan or a NodeRollout spec.strategy with it if it holds nothing
else.

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
	k, o, err := c.rollout(ctx, named)
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
	if k == target.DaemonSet && !paused {
		c.warn(o)
	}
	return nil
}

// warn says that an annotation pauses an ExtendedDaemonSet as well: it is for kubectl eds to take away.
func (c *command) warn(o *unstructured.Unstructured) {
	for key, verb := range map[string]string{
		edsv1.AnnotationRollingUpdatePaused: "unpause-rolling-update", edsv1.AnnotationRolloutFrozen: "unfreeze-rollout",
	} {
		if o.GetAnnotations()[key] == edsv1.True {
			fmt.Fprintf(c.ErrOut, "annotation %s still pauses it: kubectl eds %s %s -n %s\n", key, verb, o.GetName(), o.GetNamespace())
		}
	}
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
	if k.Strategic {
		return nested(k.Paused, nil)
	}
	// A strategy, even an empty one, means more than none: one that pausing has made goes with it.
	for path := k.Paused; ; path = path[:len(path)-1] {
		parent, _, err := unstructured.NestedMap(o.Object, path[:len(path)-1]...)
		if err != nil || len(path) == 2 || len(parent) > 1 {
			return nested(path, nil)
		}
	}
}
