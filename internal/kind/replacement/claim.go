// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"moult.dev/moult/api/v1alpha1"
)

func (w *World) claiming(t *Turn, all []*Turn) bool {
	s, n := w.set(t.ScaleSet), w.oldNode(t)
	if why := w.whyUnwanted(t); why != "" {
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
	if moved, ok := w.replacementReady(t, s, n, all); !ok {
		return moved
	}
	if n == nil {
		return w.enterLeaving(t) // Its Node is gone before its machine.
	}
	if w.Bound(t) {
		return w.claimAgain(t, n)
	}
	if n.Claim == nil && n.Marked && !n.Unreadable && !n.Foreign {
		// Somebody has taken its claim away. It is released before it is claimed again: by its cordon it would be in its own way.
		t.Step, t.Message = StepRelease, "the claim on Node "+n.Name+" was taken away"
		return false
	}
	t.Message = w.claimBlocked(t, s.Machine(t.Machine), all)
	t.Claimable = t.Message == ""
	return false
}

// replacementReady reports whether the replacement of a turn that was ready still is, or there is no room for one still.
func (w *World) replacementReady(t *Turn, s *Set, n *Node, all []*Turn) (moved, ok bool) {
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
	if m.State == Failed || w.mayRejectReplacement(t) && w.Outdated(s, m, w.NodeOf(m)) {
		return w.enter(t, v1alpha1.MachineJoining), false
	}
	if w.replacementDeleting(t, m) {
		return false, false
	}
	if why, next := w.notReady(t); why != "" {
		t.at(next)
		return w.replacementUnready(t, "the replacement is not ready any more: "+why), false
	}
	t.UnreadySince = nil
	return false, true
}

// replacementDeleting reports whether a replacement is being deleted by others, though its Node may be well until the last moment.
func (w *World) replacementDeleting(t *Turn, m *Machine) bool {
	if m == nil || m.State != Deleting {
		return false
	}
	t.Message = "machine " + m.ID + ", which is to take the place, is being deleted"
	return true
}

// claimBlocked says why a turn's node, whose replacement is ready, may not be claimed yet, or "".
func (w *World) claimBlocked(t *Turn, m *Machine, all []*Turn) string {
	s := w.set(t.ScaleSet)
	switch {
	case m != nil && w.duplicateNodes(m) != "":
		return w.duplicateNodes(m)
	case m != nil && m.Protected:
		return protected(m)
	case w.unownedControlPlane(w.oldNode(t)) != "":
		return w.unownedControlPlane(w.oldNode(t))
	case t.DeletesFirst && s.isAtMinimum():
		return s.tooFew()
	case t.DeletesFirst && w.additionsBlocked(s, all) != "":
		return w.additionsBlocked(s, all)
	case t.DeletesFirst && w.ControlPlane && !w.hasHealthyPeer(t):
		return "no other node of the control plane is there and well, and none can be made without one: surge a machine first"
	}
	return w.controlPlaneBlocks(t)
}

// hasHealthyPeer reports whether the rollout has another node that is well than the one that goes.
func (w *World) hasHealthyPeer(t *Turn) bool {
	for name, n := range w.Nodes {
		if name != t.Node && n.Selected {
			if why, _ := w.Unhealthy(name); why == "" {
				return true
			}
		}
	}
	return false
}

// controlPlaneBlocks says why a turn's node can't leave the control plane now, or "".
func (w *World) controlPlaneBlocks(t *Turn) string { return or(w.Unjoined[t.Turn], w.Waits[t.Turn]) }

// unownedControlPlane says why a node of the control plane is not to be touched by a rollout that knows nothing of control planes, or "".
func (w *World) unownedControlPlane(n *Node) string {
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
