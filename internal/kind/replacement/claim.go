// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"moult.dev/moult/api/v1alpha1"
)

func (w *World) claiming(t *Turn, all []*Turn) bool {
	s, n := w.set(t.ScaleSet), w.old(t)
	if why := w.unwanted(t); why != "" {
		return w.discard(t, why)
	}
	if gone, at := w.gone(s, t.Machine); gone {
		return w.machineLost(t, all)
	} else if t.at(at); !at.IsZero() || !s.Known {
		return false
	}
	if n != nil && n.Claim != nil && n.Claim.Turn == t.Turn {
		return w.enter(t, v1alpha1.MachineDraining)
	}
	if moved, ok := w.keepsReady(t, s, n, all); !ok {
		return moved
	}
	if n == nil {
		return w.leave(t) // Its Node is gone before its machine.
	}
	if w.Bound(t) {
		return w.reclaims(t, n)
	}
	if n.Claim == nil && n.Marked && !n.Unreadable && !n.Foreign {
		// Somebody has taken its claim away. It is given back before it is claimed again: by its cordon it would be in its own way.
		t.Step, t.Message = StepRelease, "the claim on Node "+n.Name+" was taken away"
		return false
	}
	t.Message = w.kept(t, s.Machine(t.Machine), all)
	t.Claimable = t.Message == ""
	return false
}

// keepsReady reports whether the replacement of a turn that was ready still is, or there is no room for one still.
func (w *World) keepsReady(t *Turn, s *Set, n *Node, all []*Turn) (moved, ok bool) {
	if t.DeletesFirst {
		if n == nil || t.Machine == "" || !w.hasRoom(s, all) {
			return false, true
		}
		t.DeletesFirst = false // There was none when it began.
		return w.enter(t, v1alpha1.MachineAdding), false
	}
	m := s.Machine(t.Replacement)
	if m == nil {
		return w.replacementLost(t), false
	}
	if m.State == Failed || w.chooses(t) && w.Outdated(s, m, w.NodeOf(m)) {
		return w.enter(t, v1alpha1.MachineJoining), false
	}
	if w.goes(t, m) {
		return false, false
	}
	if why, next := w.unready(t); why != "" {
		t.at(next)
		return w.wavers(t, "the replacement is not ready any more: "+why), false
	}
	t.UnreadySince = nil
	return false, true
}

// goes reports whether a replacement is being deleted by others, though its Node may be well until the last moment.
func (w *World) goes(t *Turn, m *Machine) bool {
	if m == nil || m.State != Deleting {
		return false
	}
	t.Message = "machine " + m.ID + ", which is to take the place, is being deleted"
	return true
}

// kept says why a turn's node, whose replacement is ready, may not be claimed yet, or "".
func (w *World) kept(t *Turn, m *Machine, all []*Turn) string {
	s := w.set(t.ScaleSet)
	switch {
	case m != nil && w.doubled(m) != "":
		return w.doubled(m)
	case m != nil && m.Protected:
		return protected(m)
	case w.stray(w.old(t)) != "":
		return w.stray(w.old(t))
	case t.DeletesFirst && s.least():
		return s.tooFew()
	case t.DeletesFirst && w.declining(s, all) != "":
		return w.declining(s, all)
	case t.DeletesFirst && w.ControlPlane && !w.accompanied(t):
		return "no other node of the control plane is there and well, and none can be made without one: surge a machine first"
	}
	return w.locked(t)
}

// accompanied reports whether the rollout has another node that is well than the one that goes.
func (w *World) accompanied(t *Turn) bool {
	for name, n := range w.Nodes {
		if name != t.Node && n.Selected {
			if why, _ := w.Unhealthy(name); why == "" {
				return true
			}
		}
	}
	return false
}

// locked says why a turn's node can't leave the control plane now, or "".
func (w *World) locked(t *Turn) string { return or(w.Unjoined[t.Turn], w.Waits[t.Turn]) }

// stray says why a node of the control plane is not to be touched by a rollout that knows nothing of control planes, or "".
func (w *World) stray(n *Node) string {
	if w.ControlPlane || n == nil {
		return ""
	}
	for _, role := range []string{"node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"} {
		if _, is := n.Labels[role]; is {
			return "Node " + n.Name + " has label " + role + ", and spec.replacement.controlPlane does not say how such nodes leave the control plane"
		}
	}
	return ""
}

func protected(m *Machine) string {
	if m.Aside != "" {
		return "machine " + m.ID + " is not to be deleted, " + m.Aside
	}
	return "the cloud is told not to let machine " + m.ID + " be deleted: take its protection off"
}
