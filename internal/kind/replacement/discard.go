// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"cmp"
	"strings"
	"time"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cloud"
)

// discarding handles a turn that ends without a change: its node is released, and its replacement is deleted. A turn that must have a replacement
// then goes back to phase Adding.
func (w *World) discarding(t *Turn) {
	s, n := w.SetOf(t), w.oldNode(t)
	if now := w.Attempt(s, n); s.Known && t.Attempt != now && w.mayRejectReplacement(t) {
		t.Failed, t.Attempt = nil, now // The failure does not concern the new attempt.
	}
	t.Step = w.stepToReturn(t, n, s.isGone(t.Machine) || t.Machine == "")
	switch {
	case t.Step != StepNone:
	case t.Replacement != "":
		w.discardReplacement(t, s)
	case w.replacementRemains(t, s):
	case w.needsReplacement(t):
		t.forgetReplacement()
		if t.mustRestore() {
			t.Node, t.NodeUID = "", ""
		}
		w.enter(t, v1alpha1.MachineAdding)
	default:
		t.Over = true
	}
}

// stepToReturn is what the old node needs before the turn ends: its failure is recorded, or it is released. If its machine is gone, it leaves the
// control plane, and is deleted.
func (w *World) stepToReturn(t *Turn, n *Node, gone bool) Step {
	if gone && w.ControlPlane && !w.Left[w.LeftKey(t, false)] && (n != nil || t.Node != "" && w.Nodes[t.Node] == nil) {
		return StepLeave // The Node may be gone before its etcd member.
	}
	if n == nil {
		return StepNone
	}
	mine := n.Claim != nil && n.Claim.Turn == t.Turn
	recorded := mine && n.Claim.Failed != nil
	fails := t.Failed != nil && !w.Ending // No failure is recorded once the rollout is being deleted.
	switch {
	case gone:
		return StepDeleteNode
	case w.Bound(t), fails && recorded:
		return StepNone // A bound node is never released, and a recorded failure stays.
	case fails && !n.Foreign:
		return StepFail
	case mine, n.Claim == nil && n.Marked:
		return StepRelease
	}
	return StepNone
}

// discardReplacement deletes a replacement.
func (w *World) discardReplacement(t *Turn, s *Set) {
	m, n := s.Machine(t.Replacement), w.ReplacementNode(t)
	if m != nil {
		t.noteReplacementNode(m, n) // Its Node may appear just before it is deleted.
	}
	switch {
	case t.Operation != "", m != nil && m.State == cloud.Deleting:
		w.awaitDeletion(t, s, n)
	case !s.Known: // The machine may still exist.
	case m == nil:
		w.replacementLost(t)
	case !w.ControlPlane && w.keepsFailed(t):
	case w.duplicateNodes(m) != "":
		t.Message = w.duplicateNodes(m)
	default:
		t.OnReplacement = true
		message := t.Message
		if t.Step = w.stepToEmpty(t, n, true); t.Step != StepNone {
			t.Message = message // Why it is discarded.
		} else if !w.keepsFailed(t) {
			t.ReplacementNode = cmp.Or(t.ReplacementNode, m.NodeName)
			w.orderDeletion(t, s, m)
		}
	}
}

// keepsFailed reports whether a failed replacement is kept for KeepFailed, so that people can look at it. A new attempt ends that. In a control plane
// it leaves etcd first: its member may be unhealthy.
func (w *World) keepsFailed(t *Turn) bool {
	if t.Failed == nil || t.Failed.Reason != v1alpha1.ReasonReplacementFailed || w.KeepFailed <= 0 || w.Ending || t.Attempt != w.Attempt(w.SetOf(t), w.oldNode(t)) {
		return false
	}
	until := t.Failed.Time.Add(w.KeepFailed)
	if !t.waitUntil(until, w.Now) {
		return false
	}
	t.Message = "machine " + t.Replacement + " is kept until " + until.UTC().Format(time.RFC3339)
	return true
}

// replacementRemains reports whether a lost replacement may still have a member in etcd, or a Node: these are removed first. If its Node was never
// seen, its member is not known.
func (w *World) replacementRemains(t *Turn, s *Set) bool {
	if w.ControlPlane && t.ReplacementNode != "" && !w.Left[w.LeftKey(t, true)] {
		t.Step, t.OnReplacement = StepLeave, true
		t.Message = "the machine of node " + t.ReplacementNode + ", a replacement, is gone, and the node must leave the control plane"
		return true
	}
	n := cmp.Or(w.Nodes[t.ReplacementNode], w.nodeWith(t.ReplacementProviderID))
	if n == nil || !s.Known {
		return false
	}
	_, m := w.MachineOf(n)
	isOwn := t.ReplacementProviderID != "" && strings.EqualFold(n.Spec.ProviderID, t.ReplacementProviderID) || n.Claim != nil && n.Claim.Turn == t.Turn
	if m != nil && m.State != cloud.Deleting || !isOwn {
		return false // A new machine may have the same name.
	}
	t.Step, t.OnReplacement, t.ReplacementNode = StepDeleteNode, true, n.Name
	return true
}

// ReplacementNodeName is the node name of a replacement in the control plane. Seen is false if only the cloud reports the name: the real name may
// differ. The name is empty if it is not known, or if another machine has it now.
func (w *World) ReplacementNodeName(t *Turn) (name string, seen bool) {
	m := w.SetOf(t).Machine(t.Replacement)
	if m != nil {
		if n := w.NodeOf(m); n != nil {
			return n.Name, true
		}
	}
	name, seen = t.ReplacementNode, t.ReplacementNode != ""
	if !seen && m != nil {
		name = m.NodeName
	}
	if n := w.Nodes[name]; n != nil {
		_, other := w.MachineOf(n)
		if other != nil && other.State != cloud.Deleting || n.Spec.ProviderID != "" && !strings.EqualFold(n.Spec.ProviderID, t.ReplacementProviderID) {
			return "", false
		}
	}
	return name, seen
}
