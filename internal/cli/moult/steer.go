// SPDX-License-Identifier: Apache-2.0

package moult

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cli/eds"
	"moult.dev/moult/internal/cli/flags"
	"moult.dev/moult/internal/cli/source"
	"moult.dev/moult/internal/cli/text"
	"moult.dev/moult/internal/view"
)

// steerCommand is one call of a verb that steers.
type steerCommand struct {
	command
	dryRun flags.DryRun
	src    *source.Source
}

// complete adds the common part of the verbs to the cobra command. Its argument is an object of these kinds.
func (c *steerCommand) complete(cmd *cobra.Command, kinds []*source.Kind, run func(context.Context, source.Object) error) *cobra.Command {
	c.dryRun.Add(cmd)
	return source.VerbOn(c.cluster, cmd, kinds, func(ctx context.Context, src *source.Source, o source.Object) error {
		c.src = src
		return run(ctx, o)
	})
}

// write changes an object. If change returns nil, nothing is written and changed is false.
func (c *steerCommand) write(
	ctx context.Context, o source.Object, change func(*unstructured.Unstructured) (*source.Change, error),
) (changed bool, err error) {
	err = c.src.Write(ctx, o.Kind, o.GetName(), c.patchOptions(), func(u *unstructured.Unstructured) (*source.Change, error) {
		what, err := change(u)
		if changed = what != nil; c.dryRun.Client() {
			what = nil
		}
		return what, err
	})
	return changed, err
}

func (c *steerCommand) patchOptions() metav1.PatchOptions {
	// A definition that lacks a field must not drop it silently.
	return metav1.PatchOptions{FieldManager: "kubectl-moult", DryRun: c.dryRun.Request(), FieldValidation: metav1.FieldValidationStrict}
}

// say prints what was done to an object, as kubectl does.
func (c *steerCommand) say(o source.Object, done string) {
	fmt.Fprintf(c.Out, "%s %s%s\n", o, done, c.dryRun.Suffix())
}

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

func newAbort(c *steerCommand) *cobra.Command {
	return c.complete(help("abort ROLLOUT",
		`Stop a rollout: pause it, and say which nodes are in a turn, and how to release those that are not changed yet.
If an ExtendedDaemonSet has a canary, it fails the canary instead: the canary's nodes return to the active revision.`,
		`  kubectl moult abort k3s-agent -n system-upgrade
  kubectl moult abort eds/node-exporter -n monitoring`), source.Rollouts, c.abort)
}

func (c *steerCommand) abort(ctx context.Context, o source.Object) error {
	if set, ok := typed(o).(*edsv1.ExtendedDaemonSet); ok && set.Status.Canary != nil {
		if !c.dryRun.Client() {
			if err := eds.FailCanary(ctx, c.src, set, c.clock.Now(), c.patchOptions()); err != nil {
				return err
			}
		}
		c.say(o, "canary "+set.Status.Canary.ReplicaSet+" failed: its nodes return to "+set.Status.ActiveReplicaSet)
		return nil
	}
	if err := c.setPaused(ctx, o, true); err != nil {
		return err
	}
	s, err := c.read(ctx, c.src, o.Target())
	if err != nil {
		return err
	}
	return c.print(drawInTurn(&s.rollouts[0]))
}

// unchanged are the phases in which the node or its machine is not changed yet, of all mechanisms.
var unchanged = []v1alpha1.Phase{
	v1alpha1.PhaseClaimed, v1alpha1.PhaseStarting, v1alpha1.PhasePreparing, v1alpha1.PhaseDraining,
	v1alpha1.Phase(v1alpha1.MachineAdding), v1alpha1.Phase(v1alpha1.MachineJoining), v1alpha1.Phase(v1alpha1.MachineClaiming),
}

// drawInTurn writes which nodes are in a turn, and how to release those that are not changed yet: by the label that opts out.
func drawInTurn(r *view.Rollout) (l text.Lines) {
	var nodes []string
	for _, n := range r.Nodes {
		if n.InTurn() {
			l.Add(text.Plain.Of("  "+n.Node+"  "), text.Yellow.Of(string(n.Phase)), text.Plain.Of("  goes on to its end"))
			if slices.Contains(unchanged, n.Phase) && r.Kind != source.DaemonSet.Name {
				nodes = append(nodes, n.Node)
			}
		}
	}
	l.AddWhen(len(l) == 0, text.Plain.Of("  no node is in a turn"))
	label, command := optOut(r), "kubectl label node "+strings.Join(nodes, " ")
	l.AddWhen(len(nodes) > 0, text.Dim.Of("  → release those that are not changed yet: "+command+" --overwrite "+label+"="+upgradev1.LabelDisabled))
	l.AddWhen(len(nodes) > 0, text.Dim.Of("  → remove the label before you resume: "+command+" "+label+"-"))
	return l
}

// optOut is the key of the label that keeps a Plan or a NodeRollout off a node.
func optOut(r *view.Rollout) string {
	if r.Kind == source.NodeRollout.Name {
		return v1alpha1.LabelNodeRollout(r.Name)
	}
	return upgradev1.LabelPlanHash(r.Name)
}
