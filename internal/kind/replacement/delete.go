// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"moult.dev/moult/api/v1alpha1"
)

func (w *World) deleting(t *Turn, all []*Turn) bool {
	s, n := w.set(t.ScaleSet), w.oldNode(t)
	if t.Operation != "" {
		t.Message = "machine " + t.Machine + " is being deleted"
		if o := s.Operation(t.Operation); o != nil && !o.Sent && s.Message != "" {
			t.Message = s.Message
		}
		if n != nil && w.isUnsent(t, s, t.Machine) {
			w.blockOperation(t, w.emptyAgain(t, n))
		}
		return false
	}
	if t.Machine != "" {
		return w.orderDeletion(t, s, n, all)
	}
	switch {
	case n != nil:
		t.Step, t.Message = StepDeleteNode, "the machine is gone, and its Node goes"
		return false
	case t.Replacement == "":
		t.Node, t.NodeUID = "", ""
		return w.enter(t, v1alpha1.MachineAdding)
	}
	t.Node, t.NodeUID = "", ""
	return w.enter(t, v1alpha1.MachineSoaking)
}

// isUnsent reports whether a turn's operation has been written down and, as far as is known, not sent, while the machine that it deletes may be there. It may
// have been written long ago, by a process that is no more.
func (w *World) isUnsent(t *Turn, s *Set, id string) bool {
	o, m := s.Operation(t.Operation), s.Machine(id)
	gone, _ := w.gone(s, id)
	return o != nil && !o.Sent && !gone && (m == nil || m.State != Deleting)
}

// blockOperation keeps a turn's operation from being sent while something is to be done before.
func (w *World) blockOperation(t *Turn, step Step) {
	if t.Step = step; step != StepNone {
		w.Held[t.Operation] = true
		t.Message = "its node is to be emptied again before it is deleted"
	}
}

// emptyAgain is what the node that goes needs, until it is claimed, cordoned and drained again: its deletion may be on its way, so it is not released.
func (w *World) emptyAgain(t *Turn, n *Node) Step {
	if n.Claim == nil || n.Claim.Turn != t.Turn || n.Claim.Failed != nil {
		w.forgetDrained(t, false)
		return StepClaim
	}
	return w.stepToEmpty(t, n)
}

// orderDeletion is a turn whose machine is to be deleted, and whose deletion is not ordered yet: until then it can go back.
func (w *World) orderDeletion(t *Turn, s *Set, n *Node, all []*Turn) bool {
	m := s.Machine(t.Machine)
	if m != nil && m.State == Deleting {
		t.Message = "machine " + t.Machine + " is being deleted"
		return false
	}
	if moved, stop := w.checkMachines(t, all); stop {
		return moved
	}
	if why := w.whyUnwanted(t); why != "" && !w.Bound(t) {
		return w.discard(t, why)
	}
	if n != nil {
		if moved, ok := w.isEmpty(t, n); !ok {
			return moved
		}
	}
	if !t.DeletesFirst && !w.Bound(t) {
		if why, next := w.notReady(t); why != "" {
			t.at(next)
			return w.replacementUnready(t, "the node is drained; its replacement is not ready any more: "+why)
		}
		t.UnreadySince = nil
	}
	switch {
	case m == nil:
	case w.duplicateNodes(m) != "":
		t.Message = w.duplicateNodes(m)
	case m.Protected:
		t.Message = protected(m)
	default:
		t.Step, t.Message = StepDelete, or(or(s.Message, s.Unfit), "machine "+t.Machine+" is to be deleted")
	}
	return false
}
