// SPDX-License-Identifier: Apache-2.0

package moult

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cli/eds"
	"moult.dev/moult/internal/cli/source"
	"moult.dev/moult/internal/cli/text"
	"moult.dev/moult/internal/view"
)

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
	for i := range r.Nodes {
		if n := &r.Nodes[i]; n.InTurn() {
			l.Add(text.Plain.Of("  "+n.Node+"  "), text.Yellow.Of(string(n.Phase)), text.Plain.Of("  goes on to its end"))
			if slices.Contains(unchanged, n.Phase) && r.Kind != source.DaemonSet.Name {
				nodes = append(nodes, n.Node)
			}
		}
	}
	if len(l) == 0 {
		l.Add(text.Plain.Of("  no node is in a turn"))
	}
	if len(nodes) > 0 {
		label, all := optOut(r), strings.Join(nodes, " ")
		l.Add(text.Dim.Of("  → release those that are not changed yet: kubectl label node " + all + " --overwrite " + label + "=" + upgradev1.LabelDisabled))
		l.Add(text.Dim.Of("  → remove the label before you resume: kubectl label node " + all + " " + label + "-"))
	}
	return l
}

// optOut is the key of the label that keeps a Plan or a NodeRollout off a node.
func optOut(r *view.Rollout) string {
	if r.Kind == source.NodeRollout.Name {
		return v1alpha1.LabelNodeRollout(r.Name)
	}
	return upgradev1.LabelPlanHash(r.Name)
}
