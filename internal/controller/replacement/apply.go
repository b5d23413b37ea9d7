// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/controlplane"
	"moult.dev/moult/internal/events"
	"moult.dev/moult/internal/fleet"
	machine "moult.dev/moult/internal/kind/replacement"
	"moult.dev/moult/internal/metrics"
	"moult.dev/moult/internal/node"
	"moult.dev/moult/internal/rollout"
	turnof "moult.dev/moult/internal/turn"
)

// settle takes each turn, and each node that is to be released, its next step.
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
		switch {
		case s.Step == machine.StepRelease:
			due = append(due, func() error { return p.release(ctx, s.Node) })
		case p.wantsTaint(s) && !node.Tainted(s.Node.Node, p.taint):
			due = append(due, func() error { return node.Taint(ctx, p.client, s.Node.Node, p.taint) })
		case !p.wantsTaint(s) && node.Tainted(s.Node.Node, p.taint):
			due = append(due, func() error { return node.Untaint(ctx, p.client, s.Node.Node, p.taint) })
		}
	}
	return turnof.Each(due, func(do func() error) error { return do() })
}

// wantsTaint reports whether a node is to carry the taint of those that are still to be replaced.
func (p *pass) wantsTaint(s *machine.NodeState) bool {
	strategy := p.rollout.Spec.Strategy
	return strategy != nil && strategy.TaintOutdated && !p.rules.Ending && !p.rules.DetectOnly && s.Counted && !s.WithoutNode() && !s.OptedOut && s.Unit.State != v1alpha1.UnitUpdated
}

func (p *pass) step(ctx context.Context, t *machine.Turn) error {
	old, replacement := p.view.Nodes[t.Node], p.view.ReplacementNode(t)
	switch t.Step {
	case machine.StepShield:
		return p.shield(ctx, replacement, true)
	case machine.StepFinish:
		return p.shield(ctx, replacement, false)
	case machine.StepCordon:
		return p.cordon(ctx, t, old, false)
	case machine.StepCordonBack:
		return p.cordon(ctx, t, replacement, true)
	case machine.StepDrain:
		return p.drainNode(ctx, t, old, false)
	case machine.StepDrainBack:
		return p.drainNode(ctx, t, replacement, true)
	case machine.StepTell:
		return p.tell(ctx, t, old)
	case machine.StepLeave:
		return p.leavePlane(ctx, t, false)
	case machine.StepLeaveBack:
		return p.leavePlane(ctx, t, true)
	case machine.StepDeleteNode:
		return p.deleteNode(ctx, t, false, old, replacement)
	case machine.StepDeleteBack:
		return p.deleteNode(ctx, t, true, p.view.Nodes[t.ReplacementNode], nil)
	case machine.StepFail:
		return p.fail(ctx, t, old)
	case machine.StepRelease:
		return p.release(ctx, old)
	case machine.StepHold:
		return p.hold(ctx, t, replacement, t.Replacement, "machine "+t.Replacement+" is to be deleted again")
	case machine.StepClaim:
		return p.hold(ctx, t, old, t.Machine, "machine "+t.Machine+" is to be deleted")
	case machine.StepNone, machine.StepAdd, machine.StepDelete, machine.StepDiscard:
	}
	return nil
}

// shield keeps the cluster autoscaler from a node, or lets it have the node again.
func (p *pass) shield(ctx context.Context, n *machine.Node, on bool) error {
	if n == nil {
		return nil
	}
	p.soon()
	return node.Write(ctx, p.client, n.Node, node.Step{
		Claim: v1alpha1.Claim{Rollout: p.holder}, Unclaimed: true, Also: []node.Also{shielding(on, p.holder)},
	})
}

func shielding(on bool, holder string) node.Also {
	values := map[string]*string{v1alpha1.AnnotationScaleDownDisabled: nil, v1alpha1.AnnotationScaleDownBy: nil}
	if on {
		values = map[string]*string{v1alpha1.AnnotationScaleDownDisabled: ptr.To("true"), v1alpha1.AnnotationScaleDownBy: &holder}
	}
	return node.Annotating(values)
}

// drainOf is the drain of one of a turn's nodes.
func (p *pass) drainOf(t *machine.Turn, n *machine.Node, back bool) *turnof.Drain {
	return &turnof.Drain{
		Client: p.client, Drainer: p.drainer, Works: p.works, Options: p.drain, Of: turnof.Of{Rollout: p.key, Node: n.Name, Turn: t.Key(back)},
		Generation: p.rollout.Generation, Holder: p.holder, Now: p.now, Deletes: true,
	}
}

// mayFail reports whether a turn fails if its drain does. One that is never released waits until somebody takes away what keeps the drain from being done.
func (p *pass) mayFail(t *machine.Turn, back bool) bool {
	return !back && !p.view.Bound(t) && t.Operation == ""
}

// cordon makes a node unschedulable and, in the same write, records whose pods are about to be evicted. A drain that would be refused is not begun.
func (p *pass) cordon(ctx context.Context, t *machine.Turn, n *machine.Node, back bool) error {
	p.undrained(t, back)
	claim := *n.Claim
	// Where somebody has lifted the cordon, the drain begins anew: what has come since is not to be taken for pods that a cordon does not keep away.
	claim.Cordoned = &metav1.Time{Time: p.now}
	var also []node.Also
	if p.exclude {
		also = append(also, node.Excluding(nil))
	}
	written := func() {}
	if p.rules.Drains {
		recording, recorded, failure, err := p.drainOf(t, n, back).Begin(ctx)
		switch {
		case err != nil:
			return err
		case failure != nil && p.mayFail(t, back):
			return p.fails(ctx, t, n, failure)
		case failure != nil:
			t.Message = failure.Message // It stays as it is until somebody takes away what keeps the drain from being done.
			p.at(p.now.Add(lookBusy))
			return nil
		}
		also, written = append(also, recording...), recorded
	}
	if err := node.Write(ctx, p.client, n.Node, node.Step{Claim: claim, Cordon: true, Also: also}); err != nil {
		return err
	}
	written()
	p.soon()
	log.FromContext(ctx).Info("node cordoned", "node", n.Name)
	return nil
}

// drainNode takes a drain as far as it goes now.
func (p *pass) drainNode(ctx context.Context, t *machine.Turn, n *machine.Node, back bool) error {
	d := p.drainOf(t, n, back)
	since := n.Claim.Cordoned.Time
	if !back {
		since = since.Add(p.rules.Wait)
	}
	o, err := d.Pass(ctx, n.Node, since)
	t.Message = o.Message
	p.at(o.Wake)
	switch {
	case err != nil:
		return err
	case o.Failure != nil && p.mayFail(t, back):
		return p.fails(ctx, t, n, o.Failure)
	case o.Failure != nil:
		t.Message = o.Failure.Message
		p.at(p.now.Add(lookBusy))
		return nil
	case !o.Done:
		return p.told(d.Tell(ctx, n.Node, turnof.Draining))
	case d.Announced(n.Node):
		p.mark(p.memo.drained, t.Key(back))
		return nil
	}
	p.soon() // It is said on the node that it is drained, and the node is another one then.
	return p.told(d.Tell(ctx, n.Node, turnof.Drained))
}

// mark notes what this process remembers of a turn.
func (p *pass) mark(in map[string]bool, key string) {
	p.mu.Lock()
	in[key] = true
	p.mu.Unlock()
	p.soon()
}

// undrained forgets that a node was drained: it was schedulable since.
func (p *pass) undrained(t *machine.Turn, back bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.memo.drained, t.Key(back))
}

// told notes when there is more to be told.
func (p *pass) told(wake time.Time, err error) error {
	p.at(wake)
	return err
}

// tell says in a node's conditions how its turn stands.
func (p *pass) tell(ctx context.Context, t *machine.Turn, n *machine.Node) error {
	stage := turnof.Maintained
	p.mu.Lock()
	drained := p.memo.drained[t.Key(false)]
	p.mu.Unlock()
	if drained {
		stage = turnof.Drained
	}
	return p.told(p.drainOf(t, n, false).Tell(ctx, n.Node, stage))
}

// leaving are the nodes that are on their way out of the control plane, by turn.
func leaving(turns []*machine.Turn) map[string]string {
	nodes := map[string]string{}
	for _, t := range turns {
		if t.Node != "" && (t.Phase == v1alpha1.MachineLeaving || t.Bound) {
			nodes[t.Turn] = t.Node
		}
	}
	return nodes
}

// leaves says how a turn's node leaves the control plane.
func (p *pass) leaves(t *machine.Turn, back bool) controlplane.Options {
	var others []string
	for _, turn := range slices.Sorted(maps.Keys(p.leaving)) {
		if turn != t.Turn {
			others = append(others, p.leaving[turn])
		}
	}
	o := p.departure(others)
	m := p.view.Sets[t.ScaleSet].Machine(t.Machine)
	gone := m == nil || m.State == machine.Deleting
	if back {
		if o.Gone = true; !gone && !p.view.Bound(t) {
			o.Replacement = t.Node // That one stays, and this one goes whatever its state.
		}
		return o
	}
	o.Gone = gone
	if t.Phase != v1alpha1.MachineDiscarding { // Else it ends without a change, and need not have become a member.
		o.Replacement = t.ReplacementNode
	}
	return o
}

// leavePlane lets a node leave the control plane, a step further. Where a machine that is to be deleted has a node that nobody has seen, no member of etcd
// may be left that could be its.
func (p *pass) leavePlane(ctx context.Context, t *machine.Turn, back bool) error {
	name, seen := t.Node, true
	if back {
		name, seen = p.view.Remains(t)
	}
	o := p.leaves(t, back)
	done, message := true, ""
	var err error
	if name != "" {
		done, message, err = p.options.Plane.Leave(ctx, name, o)
	}
	if done && err == nil && !seen && p.view.Sets[t.ScaleSet].Machine(t.Replacement) != nil {
		done, message, err = p.options.Plane.Leave(ctx, "", o)
	}
	switch {
	case err != nil:
		t.Message = "the control plane can't be left: " + err.Error()
		p.at(p.now.Add(planeEvery))
	case done:
		p.mark(p.memo.left, t.Key(back))
		log.FromContext(ctx).Info("node has left the control plane", "node", name)
	default:
		t.Message = message
		p.at(p.now.Add(planeEvery / 5))
	}
	return nil
}

// deleteNode deletes a Node whose machine is gone. One that is Ready is not: somebody still speaks for it, whatever the cloud says. What was evicted from
// it, and is not available again, is recorded on the one that takes its place.
func (p *pass) deleteNode(ctx context.Context, t *machine.Turn, back bool, n, replacement *machine.Node) error {
	if n == nil {
		return nil
	}
	if !p.view.Silent(t, back, n) {
		t.Message = "the cloud says that the machine of Node " + n.Name + " is gone, and the Node is Ready: it is deleted once it is not"
		return nil
	}
	if evicted, err := node.ParseEvicted(n.Annotations); err == nil && len(evicted) > 0 && replacement != nil {
		if err := node.RecordEvicted(ctx, p.client, replacement.Node, evicted...); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	err := p.client.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name}}, client.Preconditions{UID: &n.UID})
	if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("deleting node %s, %w", n.Name, err)
	}
	p.soon()
	log.FromContext(ctx).Info("node deleted", "node", n.Name)
	return nil
}

// fails lets a turn fail in its drain.
func (p *pass) fails(ctx context.Context, t *machine.Turn, n *machine.Node, failure *v1alpha1.ClaimFailure) error {
	f := *failure
	f.Time = *turnof.Stamp(f.Time.Time)
	t.Failed, t.Message = &f, ""
	t.Phase, t.PhaseSince = v1alpha1.MachineDiscarding, *turnof.Stamp(p.now)
	t.Unit.State, t.Unit.Reason, t.Unit.Message, t.Unit.Since, t.Unit.Skipped = v1alpha1.UnitFailed, f.Reason, f.Message, f.Time.Time, f.Skipped
	t.Unit.InTurn = false
	p.failed(t)
	p.soon()
	return p.fail(ctx, t, n)
}

// fail records on the node that goes why its turn failed, and gives it back.
func (p *pass) fail(ctx context.Context, t *machine.Turn, n *machine.Node) error {
	claim := p.claimOf(t)
	if n.Claim != nil && n.Claim.Turn == t.Turn {
		claim = *n.Claim
	}
	claim.Failed, claim.Failures = t.Failed, t.Failures+1
	cleared, err := turnof.EndMaintenance(ctx, p.client, n.Node, p.holder, p.now)
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	p.soon()
	return node.Write(ctx, p.client, cleared, node.Step{Claim: claim, GiveBack: true})
}

// failed notes that a turn has failed.
func (p *pass) failed(t *machine.Turn) {
	metrics.ObserveTurn(p.name(), metrics.TurnFailed, t.Failed.Time.Sub(t.Since.Time))
	p.happens(events.MachineFailed(p.rollout, t.Failed.Message))
}

// release gives a node back.
func (p *pass) release(ctx context.Context, n *machine.Node) error {
	claim := v1alpha1.Claim{Rollout: p.holder, UID: p.rollout.UID}
	if n.Claim != nil {
		claim = *n.Claim
	}
	var also []node.Also
	if n.Shielded {
		also = append(also, shielding(false, p.holder))
	}
	if err := turnof.Release(ctx, p.client, n.Node, claim, p.now, also); err != nil {
		return err
	}
	p.soon()
	log.FromContext(ctx).Info("node released", "node", n.Name)
	return nil
}

// hold claims the node of a machine that is to be deleted, if the budgets let it go: of a replacement that is taken back, or one that has lost its claim.
func (p *pass) hold(ctx context.Context, t *machine.Turn, n *machine.Node, id, what string) error {
	return p.fleet.Admit(ctx, func(now fleet.Snapshot) error {
		s := rollout.Strategy{UID: p.rollout.UID, MaxConcurrent: 1, Drains: p.rules.Drains}
		now.Leaves = n.Name
		d := rollout.Decide(s, []rollout.Unit{{Node: n.Name, State: v1alpha1.UnitOutdated}}, now.Fleet, p.clock.Now()) // To be let in may have taken long.
		if len(d.Start) == 0 {
			p.at(d.Next)
			p.queued.Set(p.key, true)
			if len(d.Waiting) > 0 {
				t.Message = what + ", and waits: " + d.Waiting[0].Message
			}
			return nil
		}
		claim := p.claimOf(t)
		claim.Machine = id
		if err := node.Write(ctx, p.client, n.Node, node.Step{Claim: claim}); err != nil {
			return err
		}
		p.soon()
		return nil
	})
}
