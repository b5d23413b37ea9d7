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
  kubectl moult pause ndb/production`), pausable, func(ctx context.Context, o source.Object) error { return c.setPaused(ctx, o, true) })
}

func newResume(c *steerCommand) *cobra.Command {
	return c.complete(help("resume ROLLOUT",
		`Resume a paused rollout or budget.
Removes spec.strategy.paused. Other reasons may still keep nodes waiting: see kubectl moult why NODE.`,
		`  kubectl moult resume k3s-agent -n system-upgrade
  kubectl moult resume ndb/production`), pausable, func(ctx context.Context, o source.Object) error { return c.setPaused(ctx, o, false) })
}

func (c *steerCommand) setPaused(ctx context.Context, o source.Object, paused bool) error {
	changed, err := c.write(ctx, o, func(u *unstructured.Unstructured) (*source.Change, error) {
		o.Unstructured = u
		return pausing(o, paused), nil
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
	c.say(o, done)
	if o.Kind != source.DaemonSet || paused {
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
func pausing(o source.Object, paused bool) *source.Change {
	path := []string{"spec", "strategy", "paused"}
	if o.Kind == source.Budget {
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
	if parent, _, err := unstructured.NestedMap(o.Object, path[:2]...); len(path) > 2 && o.Kind != source.DaemonSet && err == nil && len(parent) <= 1 {
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
