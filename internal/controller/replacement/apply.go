// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/events"
	"moult.dev/moult/internal/fleet"
	machine "moult.dev/moult/internal/kind/replacement"
	"moult.dev/moult/internal/metrics"
	"moult.dev/moult/internal/node"
	"moult.dev/moult/internal/rollout"
	turnof "moult.dev/moult/internal/turn"
)

// settle performs the next step of each turn, and of each node in none.
func (p *pass) settle(ctx context.Context) error {
	p.leaving = leaving(p.turns)
	var due []func() error
	for _, t := range p.turns {
		if !t.Over && t.Step != machine.StepNone {
			due = append(due, func() error { return p.step(ctx, t) })
		}
		if n := p.view.ReplacementNode(t); t.Absent != nil && len(t.Absent.Evicted) > 0 && n != nil && p.view.Nodes[t.Node] == nil {
			due = append(due, func() error { return p.recordEvicted(ctx, t, n) })
		}
	}
	for i := range p.nodes {
		s := &p.nodes[i]
		switch wanted := p.wantsTaint(s); {
		case s.Step == machine.StepRelease:
			due = append(due, func() error { return p.release(ctx, s.Node) })
		case wanted && !node.Tainted(s.Node.Node, p.taint):
			due = append(due, func() error { return node.Taint(ctx, p.Client, s.Node.Node, p.taint) })
		case !wanted && node.Tainted(s.Node.Node, p.taint):
			due = append(due, func() error { return node.Untaint(ctx, p.Client, s.Node.Node, p.taint) })
		}
	}
	return turnof.Each(due, func(do func() error) error { return do() })
}

// wantsTaint reports whether a node carries the taint of outdated nodes.
func (p *pass) wantsTaint(s *machine.NodeState) bool {
	strategy := p.rollout.Spec.Strategy
	return strategy != nil && strategy.TaintOutdated && !p.rules.Ending && !p.rules.DetectOnly && s.Counted && !s.WithoutNode() && !s.OptedOut && s.Unit.State != v1alpha1.UnitUpdated
}

func (p *pass) step(ctx context.Context, t *machine.Turn) error {
	n := p.turnNode(t, t.OnReplacement)
	switch t.Step {
	case machine.StepLeave:
		p.leavePlane(ctx, t)
		return nil
	case machine.StepNone, machine.StepAdd, machine.StepDelete:
		return nil
	default:
		if n == nil {
			return nil
		}
	}
	switch t.Step {
	case machine.StepShield, machine.StepUnshield:
		p.soon()
		shield := shielding(t.Step == machine.StepShield, p.holder)
		return node.Write(ctx, p.Client, n.Node, node.Step{Claim: v1alpha1.Claim{Rollout: p.holder}, Unclaimed: true, Also: []node.Also{shield}})
	case machine.StepCordon:
		return p.cordon(ctx, t, n)
	case machine.StepDrain:
		return p.drainNode(ctx, t, n)
	case machine.StepReport:
		wake, err := p.drainOf(t, n).Tell(ctx, n.Node, turnof.Maintained)
		p.at(wake)
		return err
	case machine.StepDeleteNode:
		return p.deleteNode(ctx, t, n)
	case machine.StepFail:
		return p.fail(ctx, t, n)
	case machine.StepRelease:
		return p.release(ctx, n)
	default:
		return p.claimToDelete(ctx, t, n)
	}
}

// shielding keeps the cluster autoscaler from a node, or lets it have the node again.
func shielding(on bool, holder string) node.Also {
	values := map[string]*string{v1alpha1.AnnotationScaleDownDisabled: nil, v1alpha1.AnnotationScaleDownBy: nil}
	if on {
		values = map[string]*string{v1alpha1.AnnotationScaleDownDisabled: ptr.To("true"), v1alpha1.AnnotationScaleDownBy: &holder}
	}
	return node.Annotating(values)
}

// drainOf is the drain of the node that the turn's step is about.
func (p *pass) drainOf(t *machine.Turn, n *machine.Node) *turnof.Drain {
	return &turnof.Drain{
		Client: p.Client, Drainer: p.drainer, Works: p.works, Options: p.drain, Of: turnof.Of{Rollout: p.Key, Node: n.Name, Turn: t.Key(t.OnReplacement)},
		Generation: p.rollout.Generation, Holder: p.holder, Now: p.Now, Deletes: true,
	}
}

// cordon makes a node unschedulable and, in the same write, records whose pods are about to be evicted. A drain that would be refused is not begun. After a cordon
// was removed the drain begins anew: pods may have come since.
func (p *pass) cordon(ctx context.Context, t *machine.Turn, n *machine.Node) error {
	claim := *n.Claim
	claim.Cordoned = &metav1.Time{Time: p.Now}
	var also []node.Also
	if p.exclude {
		also = append(also, node.Excluding)
	}
	if p.rules.Drains {
		recording, failure, err := p.drainOf(t, n).Begin(ctx)
		if err != nil || failure != nil {
			return p.drainFails(ctx, t, n, failure, err)
		}
		also = append(also, recording...)
	}
	if err := node.Write(ctx, p.Client, n.Node, node.Step{Claim: claim, Cordon: true, Also: also}); err != nil {
		return err
	}
	p.soon()
	log.FromContext(ctx).Info("node cordoned", "node", n.Name)
	return nil
}

// drainNode takes a drain as far as it goes now.
func (p *pass) drainNode(ctx context.Context, t *machine.Turn, n *machine.Node) error {
	d := p.drainOf(t, n)
	since := n.Claim.Cordoned.Time
	if !t.OnReplacement {
		since = since.Add(p.rules.Wait)
	}
	o, err := d.Pass(ctx, n.Node, since)
	t.Message = o.Message
	p.at(o.Wake)
	stage := turnof.Draining
	switch {
	case err != nil || o.Failure != nil:
		return p.drainFails(ctx, t, n, o.Failure, err)
	case o.Done:
		p.soon()
		stage = turnof.Drained
	}
	wake, err := d.Tell(ctx, n.Node, stage)
	p.at(wake)
	return err
}

// drainFails fails a turn whose drain can't be done. One that is never released waits until a person removes what blocks the drain.
func (p *pass) drainFails(ctx context.Context, t *machine.Turn, n *machine.Node, failure *v1alpha1.ClaimFailure, err error) error {
	if err != nil {
		return err
	}
	if t.OnReplacement || p.view.Bound(t) || t.Operation != "" {
		t.Message = failure.Message
		p.at(p.Now.Add(lookBusy))
		return nil
	}
	f := *failure
	f.Time = *turnof.Stamp(f.Time.Time)
	t.Failed, t.Message = &f, ""
	t.Phase, t.PhaseSince = v1alpha1.MachineDiscarding, *turnof.Stamp(p.Now)
	t.Unit.State, t.Unit.Reason, t.Unit.Message, t.Unit.Since, t.Unit.Skipped = v1alpha1.UnitFailed, f.Reason, f.Message, f.Time.Time, f.Skipped
	t.Unit.InTurn = false
	p.failed(t)
	return p.fail(ctx, t, n)
}

// deleteNode deletes a Node whose machine is gone. One that is Ready stays: it still runs, whatever the cloud says. What was evicted from it, and is not available
// again, is recorded on the replacement.
func (p *pass) deleteNode(ctx context.Context, t *machine.Turn, n *machine.Node) error {
	if !t.MayDeleteNode(n) {
		t.Message = "the cloud says that the machine of Node " + n.Name + " is gone, and the Node is Ready: it is deleted once it is not"
		return nil
	}
	replacement := p.view.ReplacementNode(t)
	if evicted, err := node.ParseEvicted(n.Annotations); err == nil && len(evicted) > 0 && replacement != nil && !t.OnReplacement {
		if err := node.RecordEvicted(ctx, p.Client, replacement.Node, evicted...); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	err := p.Client.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name}}, client.Preconditions{UID: &n.UID})
	if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("deleting node %s, %w", n.Name, err)
	}
	p.soon()
	log.FromContext(ctx).Info("node deleted", "node", n.Name)
	return nil
}

// fail records in the claim on the node that was to go why its turn failed, and uncordons it.
func (p *pass) fail(ctx context.Context, t *machine.Turn, n *machine.Node) error {
	claim := p.claimOf(t)
	if n.Claim != nil && n.Claim.Turn == t.Turn {
		claim = *n.Claim
	}
	claim.Failed, claim.Failures = t.Failed, t.Failures+1
	cleared, err := turnof.EndMaintenance(ctx, p.Client, n.Node, p.holder, p.Now)
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	p.soon()
	return node.Write(ctx, p.Client, cleared, node.Step{Claim: claim, Restore: true})
}

// failed notes that a turn has failed.
func (p *pass) failed(t *machine.Turn) {
	metrics.ObserveTurn(p.Name(), metrics.TurnFailed, t.Failed.Time.Sub(t.Since.Time))
	p.Happened(events.MachineFailed(p.rollout, t.Failed.Message))
}

// release releases a node.
func (p *pass) release(ctx context.Context, n *machine.Node) error {
	claim := v1alpha1.Claim{Rollout: p.holder, UID: p.UID}
	if n.Claim != nil {
		claim = *n.Claim
	}
	if err := turnof.Release(ctx, p.Client, n.Node, claim, p.Now, []node.Also{unshielding(p.holder)}); err != nil {
		return err
	}
	p.soon()
	log.FromContext(ctx).Info("node released", "node", n.Name)
	return nil
}

// claimToDelete claims the node of a machine that must be deleted, once the budgets allow it: of a replacement that is discarded, or one that has lost its claim.
func (p *pass) claimToDelete(ctx context.Context, t *machine.Turn, n *machine.Node) error {
	return p.Fleet.Admit(ctx, func(now fleet.Snapshot) error {
		s := rollout.Strategy{UID: p.UID, MaxConcurrent: 1, Drains: p.rules.Drains}
		now.Leaving = n.Name
		d := rollout.Decide(s, []rollout.Unit{{Node: n.Name, State: v1alpha1.UnitOutdated}}, now.Fleet, p.Clock.Now()) // To be admitted may have taken long.
		claim := p.claimOf(t)
		if t.OnReplacement {
			claim.Machine = t.Replacement
		}
		if len(d.Start) == 0 {
			p.at(d.Next)
			p.Waiting.Set(p.Key, true)
			if len(d.Waiting) > 0 {
				t.Message = "machine " + claim.Machine + " is to be deleted, and waits: " + d.Waiting[0].Message
			}
			return nil
		}
		p.soon()
		return node.Write(ctx, p.Client, n.Node, node.Step{Claim: claim})
	})
}
