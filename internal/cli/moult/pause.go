// SPDX-License-Identifier: Apache-2.0

package moult

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/internal/cli/source"
)

// pausable are the kinds that can be paused.
var pausable = slices.Concat(source.Rollouts, []*source.Kind{source.Budget})

func newPause(c *steerCommand) *cobra.Command {
	return c.complete(help("pause ROLLOUT",
		`Pause a rollout or a budget: no more nodes are started.
Turns and canaries that have begun go on. Sets spec.strategy.paused, or for ndb/NAME, a NodeDisruptionBudget, spec.paused.`,
		`  kubectl moult pause k3s-agent -n system-upgrade
  kubectl moult pause nr/bottlerocket
  kubectl moult pause ndb/production`), pausable, func(ctx context.Context, named source.Target) error { return c.setPaused(ctx, named, true) })
}

func newResume(c *steerCommand) *cobra.Command {
	return c.complete(help("resume ROLLOUT",
		`Resume a paused rollout or budget.
Removes spec.strategy.paused. Other reasons may still keep nodes waiting: see kubectl moult why NODE.`,
		`  kubectl moult resume k3s-agent -n system-upgrade
  kubectl moult resume ndb/production`), pausable, func(ctx context.Context, named source.Target) error { return c.setPaused(ctx, named, false) })
}

func (c *steerCommand) setPaused(ctx context.Context, named source.Target, paused bool) error {
	k, o, err := c.src.Find(ctx, named, source.Rollouts...)
	if err != nil {
		return err
	}
	changed, err := c.write(ctx, k, named.Name, func(u *unstructured.Unstructured) (*source.Change, error) {
		o = u
		return pausing(k, u, paused), nil
	})
	done := "resumed"
	switch {
	case err != nil:
		return err
	case paused && changed:
		done = "paused"
	case paused:
		done = "is paused already"
	case !changed:
		done = "is not paused"
	}
	c.say(k, named.Name, done)
	if k != source.DaemonSet || paused {
		return nil
	}
	// Annotations pause an ExtendedDaemonSet as well: kubectl eds removes them.
	for _, key := range []string{edsv1.AnnotationRollingUpdatePaused, edsv1.AnnotationRolloutFrozen} {
		if o.GetAnnotations()[key] == edsv1.True {
			fmt.Fprintf(c.ErrOut, "annotation %s still pauses it: %s\n", key, unpauseCommand(key, o.GetNamespace(), o.GetName()))
		}
	}
	return nil
}

// pausing returns the change that pauses or resumes; nil if nothing changes.
func pausing(k *source.Kind, o *unstructured.Unstructured, paused bool) *source.Change {
	path := []string{"spec", "strategy", "paused"}
	if k == source.Budget {
		path = []string{"spec", "paused"}
	}
	was, _, err := unstructured.NestedBool(o.Object, path...)
	if err == nil && was == paused {
		return nil
	}
	if paused {
		return nested(path, true)
	}
	// An empty strategy differs from none, so one that has only paused is removed. An ExtendedDaemonSet requires a strategy.
	if parent, _, err := unstructured.NestedMap(o.Object, path[:2]...); len(path) > 2 && k != source.DaemonSet && err == nil && len(parent) <= 1 {
		path = path[:2]
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
