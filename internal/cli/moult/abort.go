// SPDX-License-Identifier: Apache-2.0

package moult

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cli/eds"
	"moult.dev/moult/internal/cli/source"
	"moult.dev/moult/internal/cli/text"
	"moult.dev/moult/internal/view"
)

func newAbort(c *steerCommand) *cobra.Command {
	return c.complete(&cobra.Command{
		Use:   "abort ROLLOUT",
		Short: "Stop a rollout: start no more nodes, and say what becomes of those in a turn",
		Long: `Stop a rollout: pauses it, lists the nodes that are in a turn, and says how to release those that are not changed yet.
While an ExtendedDaemonSet has a canary, it fails the canary instead, and the canary's nodes return to the active revision.`,
		Example: `  kubectl moult abort k3s-agent -n system-upgrade
  kubectl moult abort eds/node-exporter -n monitoring`,
	}, source.Rollouts, c.abort)
}

func (c *steerCommand) abort(ctx context.Context, named source.Target) error {
	k, o, err := c.src.Find(ctx, named, source.Rollouts...)
	if err != nil {
		return err
	}
	named.Kind = k
	if set, ok := typed(k, o).(*edsv1.ExtendedDaemonSet); ok && set.Status.Canary != nil {
		if !c.dryRun.Client() {
			err = eds.FailCanary(ctx, c.src, set, c.clock.Now(), c.patchOptions())
		}
		if err == nil {
			c.say(k, named.Name, "canary "+set.Status.Canary.ReplicaSet+" failed: its nodes return to "+set.Status.ActiveReplicaSet)
		}
		return err
	}
	if err := c.setPaused(ctx, named, true); err != nil {
		return err
	}
	s, err := readShown(ctx, c.src, named, c.clock.Now())
	if err != nil {
		return err
	}
	c.note(c.src)
	return c.print(drawInTurn(&s.rollouts[0]))
}

// unchanged are the phases in which the node or its machine is not changed yet, of all mechanisms.
var unchanged = []v1alpha1.Phase{
	v1alpha1.PhaseClaimed, v1alpha1.PhaseStarting, v1alpha1.PhasePreparing, v1alpha1.PhaseDraining,
	v1alpha1.Phase(v1alpha1.MachineAdding), v1alpha1.Phase(v1alpha1.MachineJoining), v1alpha1.Phase(v1alpha1.MachineClaiming),
}

// drawInTurn writes which nodes are in a turn, and what becomes of them.
func drawInTurn(r *view.Rollout) (l text.Lines) {
	var releasable []string
	for i := range r.Nodes {
		n := &r.Nodes[i]
		if !n.InTurn() {
			continue
		}
		becomes := "goes on to its end"
		if slices.Contains(unchanged, n.Phase) && r.Kind != source.DaemonSet.Name {
			releasable, becomes = append(releasable, n.Node), "goes on, or is released by the label below"
		}
		l.Add(text.Plain.Of("  "+n.Node+"  "), text.Yellow.Of(string(n.Phase)), text.Plain.Of("  "+becomes))
	}
	if len(l) == 0 {
		l.Add(text.Plain.Of("  no node is in a turn"))
	}
	if len(releasable) > 0 {
		label := upgradev1.LabelPlanHash(r.Name) + "=" + upgradev1.LabelDisabled
		if r.Kind == source.NodeRollout.Name {
			label = v1alpha1.LabelNodeRollout(r.Name) + "=" + v1alpha1.LabelNodeRolloutDisabled
		}
		key, _, _ := strings.Cut(label, "=")
		nodes := strings.Join(releasable, " ")
		l.Add(text.Dim.Of("  → release them: kubectl label node --overwrite " + nodes + " " + label))
		l.Add(text.Dim.Of("  → before you resume: kubectl label node " + nodes + " " + key + "-"))
	}
	return l
}

func newUndo(c *steerCommand) *cobra.Command {
	return c.complete(&cobra.Command{
		Use:   "undo ROLLOUT",
		Short: "Return a rollout to its previous revision",
		Long: `Return a rollout to its previous revision: the last complete version of a Plan or of hosts, or the previous template of an ExtendedDaemonSet.
Nodes go back like forward, a few at a time, and a paused rollout stays paused. It fails where the previous revision is not known.`,
		Example: `  kubectl moult undo k3s-agent -n system-upgrade
  kubectl moult undo eds/node-exporter -n monitoring --dry-run=server`,
	}, source.Rollouts, c.undo)
}

func (c *steerCommand) undo(ctx context.Context, named source.Target) error {
	k, _, err := c.src.Find(ctx, named, source.Rollouts...)
	if err != nil {
		return err
	}
	done := ""
	_, err = c.write(ctx, k, named.Name, func(u *unstructured.Unstructured) (change *source.Change, err error) {
		switch r := typed(k, u).(type) {
		case *edsv1.ExtendedDaemonSet:
			change, done, err = eds.Rollback(ctx, c.src, u, "")
			done = "returns to the template of " + done
		case *v1alpha1.NodeRollout:
			change, done, err = undoNodeRollout(r)
		case *upgradev1.Plan:
			change, done, err = undoPlan(r)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", k.String(named.Name), err)
		}
		return change, nil
	})
	if err == nil {
		c.say(k, named.Name, done)
	}
	return err
}

// undoPlan returns the change that brings a Plan back to its last complete version.
func undoPlan(p *upgradev1.Plan) (*source.Change, string, error) {
	last := p.Status.LastComplete
	switch {
	case p.Status.RolledBack != nil:
		return nil, "", fmt.Errorf("the operator returns it from version %s to %s already", p.Status.RolledBack.Version, p.Status.LatestVersion)
	case last == nil || last.Hash == p.Status.LatestHash:
		return nil, "", errors.New("the status knows no version before this one that all nodes had: set spec.version yourself")
	case last.Version == strings.ReplaceAll(p.Spec.Version, "+", "-"):
		return nil, "", fmt.Errorf("it has version %s already; what else has changed, such as a Secret or the service account, must be undone there", last.Version)
	}
	done := "returns to version " + last.Version
	if p.Spec.Channel != "" {
		done += ", and does not follow its channel until spec.version is removed"
	}
	return nested([]string{"spec", "version"}, last.Version), done, nil
}

// undoNodeRollout returns the change that brings hosts back to their last complete version.
func undoNodeRollout(r *v1alpha1.NodeRollout) (*source.Change, string, error) {
	if r.Spec.Replacement != nil {
		var images []string
		for i := range r.Status.ScaleSets {
			if s := &r.Status.ScaleSets[i]; s.PreviousImage != "" {
				images = append(images, "moult set-image --scale-set "+s.Name+" --imageid "+s.PreviousImage)
			}
		}
		return nil, "", errors.New("its revision is the image of its scale sets, which is set in the cloud" + colon(strings.Join(images, "; ")))
	}
	last := r.Status.LastComplete
	switch {
	case r.Status.RolledBack != "":
		return nil, "", fmt.Errorf("the operator returns it from %s to %s already", r.Status.RolledBack, r.Status.Revision)
	case last == "" || last == r.Status.Revision || strings.HasPrefix(last, "reboot-"):
		return nil, "", errors.New("the status knows no version before this one that all hosts ran: set spec.hostUpdate.version yourself")
	}
	return nested([]string{"spec", "hostUpdate", "version"}, last), "returns to version " + last + "; hosts that run a newer one go back only if they offer it", nil
}
