// SPDX-License-Identifier: Apache-2.0

package steer

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/internal/cli/source"
	"moult.dev/moult/internal/cli/target"
)

// pausable are the kinds that can be paused.
var pausable = slices.Concat(target.Rollouts, []*target.Kind{target.Budget})

func newPause(c *command) *cobra.Command {
	return c.complete(&cobra.Command{
		Use:   "pause ROLLOUT",
		Short: "Pause a rollout or a budget",
		Long: `Pause a rollout: no more nodes are started. Sets spec.strategy.paused. What was started goes on.

In an ExtendedDaemonSet no outdated pod is replaced any more; pods are still made on nodes that have none, and its canary goes on.

A NodeRollout is nr/NAME, and has no namespace.

ndb/NAME pauses a NodeDisruptionBudget (spec.paused): no rollout may take any of the nodes that it selects.`,
		Example: `  kubectl moult pause k3s-agent -n system-upgrade
  kubectl moult pause eds/node-exporter -n monitoring
  kubectl moult pause nr/bottlerocket
  kubectl moult pause ndb/production`,
	}, pausable, func(ctx context.Context, named target.Target) error { return c.setPaused(ctx, named, true) })
}

func newResume(c *command) *cobra.Command {
	return c.complete(&cobra.Command{
		Use:   "resume ROLLOUT",
		Short: "Resume a paused rollout or budget",
		Long: `Resume a paused rollout: removes spec.strategy.paused, and in a Plan or a NodeRollout spec.strategy with it if it is empty then.

ndb/NAME resumes a NodeDisruptionBudget. Other reasons may still keep nodes waiting: see kubectl moult why NODE.`,
		Example: `  kubectl moult resume k3s-agent -n system-upgrade
  kubectl moult resume ndb/production`,
	}, pausable, func(ctx context.Context, named target.Target) error { return c.setPaused(ctx, named, false) })
}

func (c *command) setPaused(ctx context.Context, named target.Target, paused bool) error {
	k, o, err := c.src.Find(ctx, named, target.Rollouts...)
	if err != nil {
		return err
	}
	changed, err := c.write(ctx, k, named.Name, func(u *unstructured.Unstructured) (*source.Change, error) {
		o = u
		return pausing(k, u, paused), nil
	})
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
	if k != target.DaemonSet || paused {
		return nil
	}
	// Annotations pause an ExtendedDaemonSet as well: kubectl eds removes them.
	for key, verb := range map[string]string{
		edsv1.AnnotationRollingUpdatePaused: "unpause-rolling-update", edsv1.AnnotationRolloutFrozen: "unfreeze-rollout",
	} {
		if o.GetAnnotations()[key] == edsv1.True {
			fmt.Fprintf(c.ErrOut, "annotation %s still pauses it: kubectl eds %s %s -n %s\n", key, verb, o.GetName(), o.GetNamespace())
		}
	}
	return nil
}

// pausing is the change that pauses or resumes; nil when there is nothing to change.
func pausing(k *target.Kind, o *unstructured.Unstructured, paused bool) *source.Change {
	was, _, err := unstructured.NestedBool(o.Object, k.Paused...)
	if err == nil && was == paused {
		return nil
	}
	path := k.Paused
	if paused {
		return nested(path, true)
	}
	// A strategy, even an empty one, means more than none: one that pausing has made goes with it.
	for !k.StrategyRequired && len(path) > 2 {
		parent, _, err := unstructured.NestedMap(o.Object, path[:len(path)-1]...)
		if err != nil || len(parent) > 1 {
			break
		}
		path = path[:len(path)-1]
	}
	return nested(path, nil)
}

// nested is a change of one field.
func nested(path []string, value any) *source.Change {
	for i := len(path) - 1; i > 0; i-- {
		value = map[string]any{path[i]: value}
	}
	return &source.Change{Merge: map[string]any{path[0]: value}}
}
