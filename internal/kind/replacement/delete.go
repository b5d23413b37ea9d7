// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"moult.dev/moult/api/v1alpha1"
)

func (w *World) deleting(t *Turn, all []*Turn) bool {
	s, n := w.set(t.ScaleSet), w.old(t)
	if t.Operation != "" {
		t.Message = "machine " + t.Machine + " is being deleted"
		if o := s.Operation(t.Operation); o != nil && !o.Sent && s.Message != "" {
			t.Message = s.Message
		}
		if n != nil && w.unsent(t, s, t.Machine) {
			w.hold(t, w.refilled(t, n))
		}
		return false
	}
	if t.Machine != "" {
		return w.ordering(t, s, n, all)
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

// unsent reports whether a turn's operation has been written down and, as far as is known, not sent, while the machine that it deletes may be there. It may
// have been written long ago, by a process that is no more.
func (w *World) unsent(t *Turn, s *Set, id string) bool {
	o, m := s.Operation(t.Operation), s.Machine(id)
	gone, _ := w.gone(s, id)
	return o != nil && !o.Sent && !gone && (m == nil || m.State != Deleting)
}

// hold keeps a turn's operation from being sent while something is to be done before.
func (w *World) hold(t *Turn, step Step) {
	if t.Step = step; step != StepNone {
		w.Held[t.Operation] = true
		t.Message = "its node is to be emptied again before it is deleted"
	}
}

// refilled is what the node that goes needs, until it is claimed, cordoned and drained again: its deletion may be on its way, so it is not given back.
func (w *World) refilled(t *Turn, n *Node) Step {
	if n.Claim == nil || n.Claim.Turn != t.Turn || n.Claim.Failed != nil {
		w.forget(t, false)
		return StepClaim
	}
	return w.emptying(t, n)
}

// ordering is a turn whose machine is to be deleted, and whose deletion is not ordered yet: until then it can go back.
func (w *World) ordering(t *Turn, s *Set, n *Node, all []*Turn) bool {
	m := s.Machine(t.Machine)
	if m != nil && m.State == Deleting {
		t.Message = "machine " + t.Machine + " is being deleted"
		return false
	}
	if moved, stop := w.disturbed(t, all); stop {
		return moved
	}
	if why := w.unwanted(t); why != "" && !w.Bound(t) {
		return w.discard(t, why)
	}
	if n != nil {
		if moved, ok := w.empty(t, n); !ok {
			return moved
		}
	}
	if !t.DeletesFirst && !w.Bound(t) {
		if why, next := w.unready(t); why != "" {
			t.at(next)
			return w.wavers(t, "the node is drained; its replacement is not ready any more: "+why)
		}
		t.UnreadySince = nil
	}
	switch {
	case m == nil:
	case w.doubled(m) != "":
		t.Message = w.doubled(m)
	case m.Protected:
		t.Message = protected(m)
	default:
		t.Step, t.Message = StepDelete, or(or(s.Message, s.Unfit), "machine "+t.Machine+" is to be deleted")
	}
	return false
}
