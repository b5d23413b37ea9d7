// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"cmp"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/kind/nodeturn"
)

func (w *World) claiming(t *Turn) {
	s, n := w.set(t.ScaleSet), w.oldNode(t)
	why := w.whyUnwanted(t)
	gone, uncertain := w.isGone(t, t.Machine)
	switch {
	case why != "":
		w.discard(t, why)
	case gone:
		w.machineLost(t)
	case uncertain, !s.Known:
	case n != nil && n.Claim != nil && n.Claim.Turn == t.Turn:
		w.enter(t, v1alpha1.MachineDraining)
	case !t.DeletesFirst && !w.replacementReady(t, s):
	case n == nil:
		w.enterLeaving(t) // The Node was deleted before its machine.
	case w.Bound(t):
		t.Step, t.Message = StepClaim, "the claim on Node "+n.Name+" was removed, and the turn can't be released any more"
	case n.Claim == nil && n.Marked && !n.Unreadable && !n.Foreign:
		// The claim was removed. The node is released before it is claimed again: its own cordon would use up the budget.
		t.Step, t.Message = StepRelease, "the claim on Node "+n.Name+" was taken away"
	default:
		t.Message = w.claimBlocked(t, s.Machine(t.Machine))
		t.Claimable = t.Message == ""
	}
}

// replacementReady reports whether the replacement is still ready, and moves the turn if not.
func (w *World) replacementReady(t *Turn, s *Set) bool {
	switch m := s.Machine(t.Replacement); {
	case m == nil:
		w.replacementLost(t)
	case m.State == Failed || w.mayRejectReplacement(t) && w.Outdated(s, m, w.NodeOf(m)):
		w.enter(t, v1alpha1.MachineJoining)
	case t.isReplacementDeleting(m):
	default:
		return w.staysReady(t, "the replacement is not ready any more: ")
	}
	return false
}

// staysReady reports whether the replacement is ready. The turn fails if it was not ready for as long as Timeout.
func (w *World) staysReady(t *Turn, context string) bool {
	why := w.notReady(t)
	if why == "" {
		t.UnreadySince = nil
		return true
	}
	if t.UnreadySince == nil {
		t.UnreadySince = nodeturn.Stamp(w.Now)
	}
	t.Message = context + why
	switch {
	case t.waitUntil(t.UnreadySince.Add(w.Timeout), w.Now):
	case w.Bound(t):
		w.enter(t, v1alpha1.MachineJoining) // In that phase it fails, and is tried again with another.
	default:
		w.fail(t, v1alpha1.ReasonReplacementFailed, fmt.Sprintf("for longer than replacementReady.timeout, %s, %s", w.Timeout, t.Message))
	}
	return false
}

// isReplacementDeleting reports whether the cloud is deleting the replacement. Its Node may still be healthy.
func (t *Turn) isReplacementDeleting(m *Machine) bool {
	if m == nil || m.State != Deleting {
		return false
	}
	t.Message = "machine " + m.ID + ", the replacement, is being deleted"
	return true
}

// claimBlocked says why a turn that is otherwise ready must not claim its node yet, or "".
func (w *World) claimBlocked(t *Turn, m *Machine) string {
	s := w.set(t.ScaleSet)
	_, why := w.mustStay(m, w.oldNode(t))
	switch {
	case why != "":
		return why
	case t.DeletesFirst && s.isAtMinimum():
		return s.tooFew()
	case t.DeletesFirst && w.additionsBlocked(s, w.turns) != "":
		return w.additionsBlocked(s, w.turns)
	case t.DeletesFirst && w.ControlPlane && !w.hasHealthyPeer(t):
		return "no other node of the control plane is healthy, and none can be made without one: set spec.replacement.surge"
	}
	return cmp.Or(w.Unjoined[t.Turn], w.Waits[t.Turn]) // The control plane still needs the node.
}

// hasHealthyPeer reports whether the rollout selects another healthy node besides the old one.
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

// mustStay says why a machine must not be deleted, or "": several Nodes with its provider id, its protection, or a control plane label that the rollout does
// not handle. Machine and Node may be nil.
func (w *World) mustStay(m *Machine, n *Node) (reason v1alpha1.Reason, why string) {
	if m != nil {
		duplicates := w.duplicateNodes(m)
		switch {
		case duplicates != "":
			return v1alpha1.ReasonMachineUnknown, duplicates
		case m.Aside != "":
			return v1alpha1.ReasonMachineProtected, "machine " + m.ID + " is not to be deleted, " + m.Aside
		case m.Protected:
			return v1alpha1.ReasonMachineProtected, "machine " + m.ID + " is protected from deletion in the cloud: take its protection off"
		}
	}
	for _, role := range []string{"node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"} {
		if n != nil && !w.ControlPlane && metav1.HasLabel(n.ObjectMeta, role) {
			return v1alpha1.ReasonMachineProtected,
				"Node " + n.Name + " has label " + role + ", and spec.replacement.controlPlane does not say how such nodes leave the control plane"
		}
	}
	return "", ""
}
