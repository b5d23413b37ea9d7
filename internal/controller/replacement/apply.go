// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/fleet"
	"moult.dev/moult/internal/kind/nodeturn"
	machine "moult.dev/moult/internal/kind/replacement"
	"moult.dev/moult/internal/node"
	"moult.dev/moult/internal/rollout"
	turnof "moult.dev/moult/internal/turn"
)

// disableScaleDownAfter is how old the Node of a replacement is before its scale-down is disabled. Cluster autoscalers delete no node sooner.
const disableScaleDownAfter = time.Minute

// Take takes the next step of a turn.
func (m mechanism) Take(ctx context.Context, u *unit) error {
	t, n := u.turn, m.world.ReplacementNode(u.turn)
	if t.Absent != nil && len(t.Absent.Evicted) > 0 && n != nil && m.world.Nodes[t.Node] == nil {
		if err := m.recordEvicted(ctx, machine.AbsentNodes(m.Holder, m.UID, []v1alpha1.MachineTurn{t.MachineTurn})[0], n); err != nil {
			return err
		}
		t.Absent = nil
		m.soon()
	}
	waits := t.Phase != v1alpha1.MachineSoaking && t.Phase != v1alpha1.MachineDiscarding
	if waits && n != nil && n.MayDisableScaleDown && m.Now.After(n.CreationTimestamp.Add(disableScaleDownAfter)) {
		also := node.Annotating(map[string]*string{v1alpha1.AnnotationScaleDownDisabled: ptr.To("true"), v1alpha1.AnnotationScaleDownBy: &m.Holder})
		if err := node.Write(ctx, m.Client, n.Node, node.Edit{Claim: v1alpha1.Claim{Rollout: m.Holder}, KeepClaims: true, Also: []node.Also{also}}); err != nil {
			return err
		}
	}
	return m.step(ctx, t)
}

func (p *pass) step(ctx context.Context, t *machine.Turn) error {
	n := p.turnNode(t, t.OnReplacement)
	if n == nil && t.Step != machine.StepLeave {
		return nil
	}
	switch t.Step {
	case machine.StepLeave:
		p.leavePlane(ctx, t)
	case machine.StepClaim:
		return p.claimToDelete(ctx, t, n)
	case machine.StepCordon:
		return p.cordon(ctx, t, n)
	case machine.StepDrain:
		return p.drainNode(ctx, t, n)
	case machine.StepDeleteNode:
		return p.deleteNode(ctx, t, n)
	case machine.StepFail:
		return p.fail(ctx, t, n, t.Failed)
	case machine.StepRelease:
		return p.Release(ctx, p.on(n, t))
	default: // The cloud is asked, or the turn waits.
	}
	return nil
}

// on is a turn as the engine sees it on one of its nodes.
func (p *pass) on(n *machine.Node, t *machine.Turn) *unit {
	return &unit{Turn: nodeturn.Turn{Node: n.Node, Claim: p.claimOn(n)}, turn: t}
}

// cordon makes a node unschedulable, and begins the drain. A drain that would be refused is not begun. If people removed the cordon, the drain begins
// anew: pods may have come since.
func (p *pass) cordon(ctx context.Context, t *machine.Turn, n *machine.Node) error {
	u := p.on(n, t)
	if refused, err := p.TryCordon(ctx, u, p.rules.Drains, p.excluding...); err != nil || refused != nil {
		return p.drainFails(ctx, t, n, refused, err)
	}
	p.soon()
	if n.Claim = u.Claim; p.rules.Drains && !p.Gated() && (p.rules.Wait <= 0 || t.OnReplacement) {
		return p.drainNode(ctx, t, n) // A gated drain writes to the Node that the next pass reads.
	}
	return nil
}

// drainNode continues the drain of a node.
func (p *pass) drainNode(ctx context.Context, t *machine.Turn, n *machine.Node) error {
	u := p.on(n, t)
	over, failure, err := p.TryDrain(ctx, u, n.Claim.Cordoned.Add(p.rules.Wait))
	if t.Message = u.Message; err != nil || failure != nil {
		return p.drainFails(ctx, t, n, failure, err)
	}
	if over {
		t.Stepped = true
		p.soon()
	}
	return nil
}

// drainFails records in the claim why a drain can't be done: the next pass finds that the turn has failed. A turn that can't be cancelled waits until
// a person removes the obstacle.
func (p *pass) drainFails(ctx context.Context, t *machine.Turn, n *machine.Node, failure *v1alpha1.ClaimFailure, err error) error {
	if err != nil {
		return err
	}
	if t.OnReplacement || p.world.Bound(t) || t.Operation != "" {
		t.Message = failure.Message
		p.at(p.Now.Add(lookBusy))
		return nil
	}
	return p.fail(ctx, t, n, failure)
}

// deleteNode deletes a Node whose machine is gone. A Ready Node stays unless the cloud has just confirmed the deletion: it still runs. Evicted
// workloads that are not available again are recorded on the replacement.
func (p *pass) deleteNode(ctx context.Context, t *machine.Turn, n *machine.Node) error {
	if !t.MayDeleteNode(n) {
		t.Message = "the cloud says that the machine of Node " + n.Name + " is gone, and the Node is Ready: the Node is deleted when it is no longer Ready"
		return nil
	}
	if replacement := p.world.ReplacementNode(t); replacement != nil && !t.OnReplacement {
		if err := p.recordEvicted(ctx, n.Node, replacement); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	err := p.Client.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name}}, client.Preconditions{UID: &n.UID})
	if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("deleting node %s, %w", n.Name, err)
	}
	t.Stepped = true
	p.soon()
	log.FromContext(ctx).Info("node deleted", "node", n.Name)
	return nil
}

// fail records in the claim on the old node why its turn failed, and uncordons the node.
func (p *pass) fail(ctx context.Context, t *machine.Turn, n *machine.Node, failure *v1alpha1.ClaimFailure) error {
	claim := p.claimOf(t)
	if n.Claim != nil && n.Claim.Turn == t.Turn {
		claim = *n.Claim
	}
	claim.Failed, claim.Failures = failure, t.Failures+1
	if err := p.WriteClaim(ctx, p.on(n, t), claim, node.Edit{Restore: true}); err != nil {
		return client.IgnoreNotFound(err)
	}
	p.soon()
	return nil
}

// claimToDelete claims the node of a machine that must be deleted, when the budgets allow it: a discarded replacement, or an old node that has lost
// its claim.
func (p *pass) claimToDelete(ctx context.Context, t *machine.Turn, n *machine.Node) error {
	return p.Fleet.Admit(ctx, func(now fleet.Snapshot) error {
		s := rollout.Strategy{UID: p.UID, MaxConcurrent: 1, Drains: p.rules.Drains}
		now.Leaving = n.Name
		d := rollout.Decide(s, []rollout.Unit{{Node: n.Name, State: v1alpha1.UnitOutdated}}, now.Fleet, p.Clock.Now()) // Admission may have taken long.
		claim := p.claimOf(t)
		if t.OnReplacement {
			claim.Machine = t.Replacement
		}
		if len(d.Start) == 0 {
			p.at(d.Next)
			p.Waiting.Set(p.Key, true)
			if len(d.Waiting) > 0 {
				t.Message = "machine " + claim.Machine + " will be deleted, and waits: " + d.Waiting[0].Message
			}
			return nil
		}
		if p.Fleet.KnowsReplaced(ctx) {
			if err := node.Write(ctx, p.Client, n.Node, node.Edit{Claim: claim}); err != nil {
				return err
			}
		}
		p.soon()
		return nil
	})
}

// absent are the Nodes of all NodeRollouts that were deleted before their replacements joined.
func (c *Controller) absent(ctx context.Context) ([]*corev1.Node, error) {
	rollouts, err := replacements(ctx, c.Client, indexTurns)
	if err != nil {
		return nil, err
	}
	var all []*corev1.Node
	for i := range rollouts {
		stored := &rollouts[i]
		holder := node.Holder(turnof.Kind, client.ObjectKeyFromObject(stored))
		all = append(all, machine.AbsentNodes(holder, stored.GetUID(), turnof.StatusOf(stored).Turns)...)
	}
	slices.SortFunc(all, func(a, b *corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// recordEvicted copies the evictions from a Node that is deleted to the replacement's Node, where budgets count them.
func (p *pass) recordEvicted(ctx context.Context, from *corev1.Node, replacement *machine.Node) error {
	evicted, err := v1alpha1.ParseEvicted(from.Annotations)
	if err != nil {
		log.FromContext(ctx).Error(err, "a record of evictions is dropped with its node", "node", from.Name)
	}
	if len(evicted) == 0 {
		return nil
	}
	p.Fleet.ExpectRecord(replacement.Name)
	return node.RecordEvicted(ctx, p.Client, replacement.Node, evicted...)
}
