// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"fmt"
	"time"

	"moult.dev/moult/api/v1alpha1"
)

// emptying is a turn whose node is drained, and then leaves the control plane.
func (w *World) emptying(t *Turn, all []*Turn) bool {
	if moved, ready := w.readyToDelete(t, all); !ready {
		return moved
	}
	switch {
	case t.Phase == v1alpha1.MachineDraining:
		return w.enterLeaving(t)
	case w.Left[w.LeftKey(t, false)]:
		return w.enter(t, v1alpha1.MachineDeleting)
	}
	// It does not fail for the time it takes: it may have left in part.
	t.Step = StepLeave
	return false
}

func (w *World) enterLeaving(t *Turn) bool {
	if w.ControlPlane {
		return w.enter(t, v1alpha1.MachineLeaving)
	}
	return w.enter(t, v1alpha1.MachineDeleting)
}

// readyToDelete reports whether the machine that goes may be deleted: its node is claimed, cordoned and drained, and its replacement is ready. If not, the turn has
// moved, or its step says what is missing. It is checked until the deletion is ordered: others may have uncordoned the node since.
func (w *World) readyToDelete(t *Turn, all []*Turn) (moved, ready bool) {
	if moved, stop := w.checkMachines(t, all); stop {
		return moved, false
	}
	n, bound := w.oldNode(t), w.Bound(t)
	if !w.set(t.ScaleSet).Known && (n == nil || t.Phase != v1alpha1.MachineDraining) {
		return false, false // Its Node may have been registered again.
	}
	if t.Machine == "" {
		return false, true
	}
	if n != nil && !bound && (n.Claim == nil || n.Claim.Turn != t.Turn) {
		return w.enter(t, v1alpha1.MachineClaiming), false
	}
	if why := w.whyUnwanted(t); why != "" {
		return w.discard(t, why), false
	}
	if !bound && w.turnExpired(t) {
		return true, false
	}
	if t.Step = w.stepToEmpty(t, n, false); t.Step != StepNone {
		t.UnreadySince = nil
		return false, false
	}
	if !t.DeletesFirst && (!bound || t.Phase == v1alpha1.MachineDraining) {
		if why, next := w.notReady(t); why != "" {
			t.wakeAt(next)
			return w.replacementUnready(t, "the node is drained; its replacement is not ready any more: "+why), false
		}
		t.UnreadySince = nil
	}
	return false, true
}

// checkMachines checks that the machines of a turn are there, and that its drain has not failed. If not, the turn stops, and may have moved.
func (w *World) checkMachines(t *Turn, all []*Turn) (moved, stop bool) {
	s, n := w.set(t.ScaleSet), w.oldNode(t)
	if gone, at := w.gone(s, t.Machine); gone {
		return w.machineLost(t, all), true
	} else if t.wakeAt(at); !at.IsZero() {
		t.Message = "machine " + t.Machine + " is not listed by the cloud"
		return false, true
	}
	if n != nil && n.Claim != nil && n.Claim.Turn == t.Turn && n.Claim.Failed != nil && !w.Bound(t) {
		t.Failed = n.Claim.Failed
		return w.enter(t, v1alpha1.MachineDiscarding), true
	}
	if t.DeletesFirst || !s.Known {
		return false, false
	}
	m := s.Machine(t.Replacement)
	if m == nil {
		return w.replacementLost(t), true
	}
	t.noteReplacementNode(m, w.NodeOf(m))
	return false, t.isReplacementDeleting(m)
}

// turnExpired fails a turn that takes longer than turnTimeout.
func (w *World) turnExpired(t *Turn) bool {
	n := w.oldNode(t)
	if w.TurnTimeout == 0 || n == nil || n.Claim == nil {
		return false
	}
	deadline := n.Claim.Since.Add(w.TurnTimeout)
	if w.Now.Before(deadline) {
		t.wakeAt(deadline)
		return false
	}
	message := fmt.Sprintf("the turn of Node %s took longer than turnTimeout, %s", t.Node, w.TurnTimeout)
	if t.Message != "" {
		message += "; " + t.Message
	}
	return w.fail(t, v1alpha1.ReasonTurnTimeout, message)
}

// stepToEmpty is what one of a turn's nodes needs before its machine may be deleted: the claim, the cordon, the drain. A replacement leaves the control plane as
// well, also one without a Node: it may have become a member.
func (w *World) stepToEmpty(t *Turn, n *Node, ofReplacement bool) Step {
	switch {
	case n == nil:
	case n.Claim == nil || n.Claim.Turn != t.Turn || n.Claim.Failed != nil:
		t.Message = "the claim on Node " + n.Name + " was removed, and the turn can't be released any more"
		return StepClaim
	case n.Claim.Cordoned == nil || !n.Spec.Unschedulable:
		t.Message = ""
		return StepCordon
	case !ofReplacement && w.Now.Before(n.Claim.Cordoned.Add(w.Wait)):
		since := n.Claim.Cordoned.Add(w.Wait)
		t.wakeAt(since)
		t.Message = "load balancers take the node out until " + since.UTC().Format(time.RFC3339)
		return StepReport
	case w.Drains && !w.Drained[t.Key(ofReplacement)]:
		return StepDrain
	}
	if ofReplacement && w.ControlPlane {
		key := w.LeftKey(t, true)
		if !w.Left[key] {
			return StepLeave
		}
		if n == nil {
			delete(w.Left, key) // It may still become a member.
		}
	}
	return StepNone
}

func (w *World) deleting(t *Turn, all []*Turn) bool {
	s, n := w.set(t.ScaleSet), w.oldNode(t)
	switch m := s.Machine(t.Machine); {
	case t.Operation != "":
		w.awaitDeletion(t, s, n, t.Machine, false)
		return false
	case m != nil && m.State == Deleting:
		t.Message = "machine " + m.ID + " is being deleted"
		return false
	case t.Machine != "":
		moved, ready := w.readyToDelete(t, all)
		if ready {
			w.orderDeletion(t, s, m)
		}
		return moved
	case n != nil:
		t.Step, t.Message = StepDeleteNode, "the machine is gone, and its Node goes"
		return false
	}
	t.Node, t.NodeUID = "", ""
	if t.Replacement == "" {
		return w.enter(t, v1alpha1.MachineAdding)
	}
	return w.enter(t, v1alpha1.MachineSoaking)
}

// awaitDeletion is a turn whose deletion is written down. If it may not have been sent, which a process before this one may have left so, it is sent only while the
// node is empty.
func (w *World) awaitDeletion(t *Turn, s *Set, n *Node, id string, ofReplacement bool) {
	t.Message = "machine " + id + " is being deleted"
	o, m := s.Operation(t.Operation), s.Machine(id)
	if gone, _ := w.gone(s, id); o == nil || o.Sent || gone || m != nil && m.State == Deleting {
		return
	}
	t.Message = or(s.Message, t.Message)
	if t.Step = w.stepToEmpty(t, n, ofReplacement); t.Step != StepNone {
		t.OnReplacement, w.Held[t.Operation] = ofReplacement, true
		t.Message = "Node " + or(t.Node, t.ReplacementNode) + " is emptied again before its machine is deleted"
	}
}

// orderDeletion is a turn of whose machines one may be deleted now, unless the machine itself prevents it.
func (w *World) orderDeletion(t *Turn, s *Set, m *Machine) {
	switch {
	case m == nil:
	case w.duplicateNodes(m) != "":
		t.Message = w.duplicateNodes(m)
	case m.Protected:
		t.Message = protected(m)
	default:
		t.Step, t.Message = StepDelete, or(or(s.Message, s.Unfit), "machine "+m.ID+" is to be deleted")
	}
}
