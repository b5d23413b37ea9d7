// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"context"
	"fmt"
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
)

// disableScaleDownAfter is how old the Node of a replacement is before its scale-down is disabled. Cluster autoscalers delete no node sooner.
const disableScaleDownAfter = time.Minute

// Take takes the next step of a turn.
func (m mechanism) Take(ctx context.Context, u *unit) error {
	t, n := u.turn, m.world.ReplacementNode(u.turn)
	if t.Absent != nil && len(t.Absent.Evicted) > 0 && n != nil && m.world.Nodes[t.Node] == nil {
		if err := m.recordEvicted(ctx, t, n); err != nil {
			return err
		}
	}
	waits := t.Phase != v1alpha1.MachineSoaking && t.Phase != v1alpha1.MachineDiscarding
	if waits && n != nil && n.MayDisableScaleDown && m.Now.After(n.CreationTimestamp.Add(disableScaleDownAfter)) {
		also := node.Annotating(map[string]*string{v1alpha1.AnnotationScaleDownDisabled: ptr.To("true"), v1alpha1.AnnotationScaleDownBy: &m.holder})
		if err := node.Write(ctx, m.Client, n.Node, node.Edit{Claim: v1alpha1.Claim{Rollout: m.holder}, KeepClaims: true, Also: []node.Also{also}}); err != nil {
			return err
		}
	}
	return m.step(ctx, t)
}

func (p *pass) step(ctx context.Context, t *machine.Turn) error {
	n := p.turnNode(t, t.OnReplacement)
	switch {
	case t.Step == machine.StepLeave:
		p.leavePlane(ctx, t)
		return nil
	case n == nil:
		return nil
	}
	switch t.Step {
	case machine.StepNone, machine.StepAdd, machine.StepDelete, machine.StepWait:
		return nil
	case machine.StepCordon:
		return p.cordon(ctx, t, n)
	case machine.StepDrain:
		return p.drainNode(ctx, t, n)
	case machine.StepDeleteNode:
		return p.deleteNode(ctx, t, n)
	case machine.StepFail:
		return p.fail(ctx, t, n, t.Failed)
	case machine.StepRelease:
		return p.Release(ctx, &unit{Turn: nodeturn.Turn{Node: n.Node, Claim: p.claimOn(n)}})
	default:
		return p.claimToDelete(ctx, t, n)
	}
}

// cordon makes a node unschedulable and, in the same write, records whose pods are about to be evicted. Then it begins the drain. A drain that would
// be refused is not begun. If people removed the cordon, the drain begins anew: pods may have come since.
func (p *pass) cordon(ctx context.Context, t *machine.Turn, n *machine.Node) error {
	claim := *n.Claim
	claim.Cordoned = &metav1.Time{Time: p.Now}
	var also []node.Also
	if p.exclude {
		also = append(also, node.Excluding)
	}
	d := p.DrainOf(n.Node, t.Key(t.OnReplacement))
	if p.rules.Drains {
		recording, failure, err := d.Begin(ctx)
		if err != nil || failure != nil {
			return p.drainFails(ctx, t, n, failure, err)
		}
		also = append(also, recording...)
	}
	cleared, err := node.ClearConditions(ctx, p.Client, n.Node, p.holder, p.Now)
	if err == nil {
		err = node.Write(ctx, p.Client, cleared, node.Edit{Claim: claim, Cordon: true, Also: also})
	}
	if err != nil {
		return err
	}
	p.soon()
	log.FromContext(ctx).Info("node cordoned", "node", n.Name)
	if n.Claim = &claim; p.rules.Drains && !d.Gated && (p.rules.Wait <= 0 || t.OnReplacement) {
		return p.drainNode(ctx, t, n) // A gated drain writes to the Node that the next pass reads.
	}
	return nil
}

// drainNode continues the drain of a node.
func (p *pass) drainNode(ctx context.Context, t *machine.Turn, n *machine.Node) error {
	d := p.DrainOf(n.Node, t.Key(t.OnReplacement))
	since := n.Claim.Cordoned.Add(p.rules.Wait)
	o, err := d.Pass(ctx, n.Node, since)
	t.Message = o.Message
	p.at(o.Wake)
	if err != nil || o.Failure != nil {
		return p.drainFails(ctx, t, n, o.Failure, err)
	}
	over, wake, err := d.Report(ctx, n.Node, since, o.Done)
	if p.at(wake); over {
		t.Stepped = true
		p.soon()
	}
	return err
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
	replacement := p.world.ReplacementNode(t)
	if evicted, err := node.ParseEvicted(n.Annotations); err == nil && len(evicted) > 0 && replacement != nil && !t.OnReplacement {
		p.Fleet.ExpectRecord(replacement.Name)
		if err := node.RecordEvicted(ctx, p.Client, replacement.Node, evicted...); client.IgnoreNotFound(err) != nil {
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
	cleared, err := node.ClearConditions(ctx, p.Client, n.Node, p.holder, p.Now)
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	p.soon()
	return node.Write(ctx, p.Client, cleared, node.Edit{Claim: claim, Restore: true})
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
		if len(d.Start) == 0 || !p.Fleet.KnowsReplaced(ctx) {
			p.at(d.Next)
			p.Waiting.Set(p.Key, true)
			if len(d.Waiting) > 0 {
				t.Message = "machine " + claim.Machine + " will be deleted, and waits: " + d.Waiting[0].Message
			}
			return nil
		}
		p.soon()
		return node.Write(ctx, p.Client, n.Node, node.Edit{Claim: claim})
	})
}
