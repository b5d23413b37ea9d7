// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"cmp"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cloud"
	"moult.dev/moult/internal/kind/nodeturn"
)

func (w *World) claiming(t *Turn) {
	s, n := w.SetOf(t), w.oldNode(t)
	m, why := s.Machine(t.Replacement), w.whyUnwanted(t)
	switch {
	case why != "":
		w.discard(t, why)
	case !w.machineListed(t), !s.Known, !t.DeletesFirst && !w.replacementListed(t):
	case n != nil && n.Claim != nil && n.Claim.Turn == t.Turn:
		w.enter(t, v1alpha1.MachineDraining)
	case m != nil && (m.State == cloud.Failed || w.mayRejectReplacement(t) && w.Outdated(s, m, w.NodeOf(m))):
		w.enter(t, v1alpha1.MachineJoining)
	case !t.DeletesFirst && !w.staysReady(t, "the replacement is not ready any more: "):
	case n == nil:
		w.enter(t, v1alpha1.MachineLeaving) // The Node was deleted before its machine.
	case w.Bound(t):
		t.Step, t.Message = StepClaim, "the claim on Node "+n.Name+" was removed, and the turn can't be released any more"
	case n.Claim == nil && n.Marked && !n.Unreadable && !n.Foreign:
		// The claim was removed. The node is released before it is claimed again: its own cordon would use up the budget.
		t.Step, t.Message = StepRelease, "the claim on Node "+n.Name+" was taken away"
	default:
		t.Message = w.claimBlocked(t)
		t.Claimable = t.Message == ""
	}
}

// machineListed reports whether the cloud lists the old machine, or the set was not read. If the machine is gone, it moves the turn.
func (w *World) machineListed(t *Turn) bool {
	switch s := w.SetOf(t); {
	case s.isGone(t.Machine):
		w.machineLost(t)
	case s.isMissing(t.Machine):
		t.Message = "machine " + t.Machine + " is not listed by the cloud"
	default:
		return true
	}
	return false
}

// replacementListed reports whether the cloud lists the replacement, and is not deleting it. If the replacement is gone, it moves the turn.
func (w *World) replacementListed(t *Turn) bool {
	m := w.SetOf(t).Machine(t.Replacement)
	if m == nil {
		w.replacementLost(t)
		return false
	}
	t.noteReplacementNode(m, w.NodeOf(m))
	if m.State == cloud.Deleting { // Its Node may still be healthy.
		t.Message = "machine " + m.ID + ", the replacement, is being deleted"
	}
	return m.State != cloud.Deleting
}

// staysReady reports whether the replacement is ready. The turn fails if it was not ready for as long as Timeout.
func (w *World) staysReady(t *Turn, context string) bool {
	why := w.notReady(t)
	switch {
	case why == "":
		t.UnreadySince = nil
	case !w.isUnreadyForLong(t, context+why):
	case w.Bound(t):
		w.enter(t, v1alpha1.MachineJoining) // In that phase it fails, and is tried again with another.
	default:
		w.fail(t, v1alpha1.ReasonReplacementFailed, fmt.Sprintf("for longer than replacementReady.timeout, %s, %s", w.Timeout, t.Message))
	}
	return why == ""
}

// isUnreadyForLong records that a replacement is not ready, and reports whether that has lasted for Timeout.
func (w *World) isUnreadyForLong(t *Turn, why string) bool {
	t.Message = why
	if t.UnreadySince == nil {
		t.UnreadySince = nodeturn.Stamp(w.Now)
	}
	return !t.waitUntil(t.UnreadySince.Add(w.Timeout), w.Now)
}

// claimBlocked says why a turn that is otherwise ready must not claim its node yet, or "".
func (w *World) claimBlocked(t *Turn) string {
	s := w.SetOf(t)
	_, why := w.MustStay(s.Machine(t.Machine), w.oldNode(t))
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
	return cmp.Or(t.WhyNotJoined, t.WhyOldMustStay) // The control plane still needs the node.
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

// MustStay says why a machine must not be deleted, or "": several Nodes with its provider id, its protection, or a control plane label that the
// rollout does not handle. Machine and Node may be nil.
func (w *World) MustStay(m *cloud.Machine, n *Node) (reason v1alpha1.Reason, why string) {
	if m != nil {
		duplicates := w.duplicateNodes(m)
		switch {
		case duplicates != "":
			return v1alpha1.ReasonMachineUnknown, duplicates
		case m.Aside != "":
			return v1alpha1.ReasonMachineProtected, "machine " + m.ID + " is not to be deleted, " + m.Aside
		case m.Protected:
			return v1alpha1.ReasonMachineProtected, "machine " + m.ID + " is protected from deletion in the cloud: remove its protection"
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
