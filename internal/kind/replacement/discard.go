// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"strings"
	"time"

	"moult.dev/moult/api/v1alpha1"
)

// discarding is a turn that ends without a change: its node is released, and the replacement is deleted.
func (w *World) discarding(t *Turn, all []*Turn) bool {
	s, n := w.set(t.ScaleSet), w.oldNode(t)
	gone := t.Machine == ""
	if !gone {
		gone, _ = w.gone(s, t.Machine)
	}
	if n != nil {
		if t.Step = w.stepToReturn(t, n, gone); t.Step != StepNone {
			return false
		}
	} else if gone && w.ControlPlane && t.Node != "" && w.Nodes[t.Node] == nil && !w.Left[t.Key(false)] {
		t.Step = StepLeave // Its Node is gone before its member.
		return false
	}
	if t.Replacement != "" {
		return w.discardReplacement(t, s, all)
	}
	if w.memberRemains(t) || w.nodeRemains(t, s) {
		return false
	}
	t.ReplacementNode, t.ReplacementProviderID = "", ""
	if w.needsReplacement(t) && !s.Absent {
		w.forgetDrained(t, true)
		delete(w.Left, t.Key(true)) // Another has not.
		if t.mustRestore() {
			t.Node, t.NodeUID = "", ""
		}
		return w.enter(t, v1alpha1.MachineAdding)
	}
	t.Over = true
	return false
}

// stepToReturn is what the node that was to go needs: it is released, or deleted if its machine is gone.
func (w *World) stepToReturn(t *Turn, n *Node, gone bool) Step {
	own := n.Claim
	mine := own != nil && own.Turn == t.Turn
	told := mine && own.Failed != nil
	// Where another rollout has the node, and where this one ends, nothing is recorded.
	tells := t.Failed != nil && !n.Foreign && !w.Ending
	switch {
	case gone && w.ControlPlane && !w.Left[t.Key(false)]:
		return StepLeave
	case gone:
		return StepDeleteNode
	case w.Bound(t):
		// It is not released.
	case tells && !told:
		return StepFail
	case t.Failed != nil && told && !w.Ending:
		// It stays there.
	case !tells && mine, !tells && own == nil && n.Marked:
		return StepRelease
	}
	return StepNone
}

// discardReplacement takes a replacement back.
func (w *World) discardReplacement(t *Turn, s *Set, all []*Turn) bool {
	m, n := s.Machine(t.Replacement), w.ReplacementNode(t)
	if m != nil {
		t.noteReplacementNode(m, n) // It may join in its last moment.
	}
	if t.Operation != "" {
		t.Message = "machine " + t.Replacement + " is being deleted again"
		if w.isUnsent(t, s, t.Replacement) {
			w.blockOperation(t, w.stepToClear(t, n))
		}
		return false
	}
	if m == nil {
		return w.replacementGone(t, s, all)
	}
	if !w.ControlPlane && w.keepsFailed(t) {
		return false
	}
	if m.State == Deleting {
		t.Message = "machine " + t.Replacement + " is being deleted again"
		return false
	}
	if why := w.duplicateNodes(m); why != "" {
		t.Message = why
		return false
	}
	if t.Step = w.stepToClear(t, n); t.Step != StepNone || w.keepsFailed(t) {
		return false
	}
	if m.Protected {
		t.Message = protected(m)
		return false
	}
	if t.ReplacementNode == "" {
		t.ReplacementNode = m.NodeName
	}
	t.Step, t.Message = StepDiscard, or(or(s.Message, s.Unfit), "machine "+t.Replacement+" is to be deleted again")
	return false
}

// keepsFailed reports whether a replacement that has failed is still kept to be looked at: not where something else is asked for since, or that it is tried again.
// One of a control plane leaves it before: its member may be sick.
func (w *World) keepsFailed(t *Turn) bool {
	if t.Failed == nil || w.KeepFailed <= 0 || w.Ending || t.Attempt != w.Attempt(w.set(t.ScaleSet), w.oldNode(t)) {
		return false
	}
	until := t.Failed.Time.Add(w.KeepFailed)
	if !w.Now.Before(until) {
		return false
	}
	t.at(until)
	t.Message = "machine " + t.Replacement + " is kept to be looked at until " + until.UTC().Format(time.RFC3339)
	return true
}

// replacementGone is a turn whose replacement went before it was deleted. If the cloud makes another in its place, which nobody asked for, that one is deleted.
func (w *World) replacementGone(t *Turn, s *Set, all []*Turn) bool {
	gone, at := w.gone(s, t.Replacement)
	t.at(at)
	if !gone {
		t.Message = "machine " + t.Replacement + " is not listed by the cloud"
		return false
	}
	if w.memberRemains(t) || w.nodeRemains(t, s) {
		return false
	}
	if !s.Absent && !w.needsReplacement(t) && (s.isAdding() || s.lacksMachines()) {
		t.Message = "machine " + t.Replacement + " is gone, and the one that the cloud makes in its place is to be deleted"
		return false
	}
	w.forgetDrained(t, true)
	t.forgetReplacement(w)
	if s.Absent {
		return true
	}
	if w.needsReplacement(t) {
		w.awaitReplacement(t) // There is to be one.
		return true
	}
	if m := w.successor(t, s, all); m != nil {
		t.Replacement = m.ID
	}
	return true
}

// memberRemains reports whether a replacement that is gone may have left a member in etcd, which then goes first. Where its Node was never seen, nobody can tell
// which that is.
func (w *World) memberRemains(t *Turn) bool {
	if !w.ControlPlane || t.ReplacementNode == "" || w.Left[t.Key(true)] {
		return false
	}
	t.Step = StepLeaveBack
	t.Message = "the machine of node " + t.ReplacementNode + ", which was to take the place, is gone, and the node is to leave the control plane"
	return true
}

// Remains is the name by which a replacement is known in the control plane. Seen is false where it is the cloud's word alone: its node may have another one.
// It is empty where it is not known, or where another machine has it by now.
func (w *World) Remains(t *Turn) (name string, seen bool) {
	m := w.set(t.ScaleSet).Machine(t.Replacement)
	if m != nil {
		if n := w.NodeOf(m); n != nil {
			return n.Name, true
		}
	}
	name, seen = t.ReplacementNode, t.ReplacementNode != ""
	if !seen && m != nil {
		name = m.NodeName
	}
	n := w.Nodes[name]
	if n == nil {
		return name, seen
	}
	_, other := w.MachineOf(n)
	if other != nil && other.State != Deleting || n.Spec.ProviderID != "" && !strings.EqualFold(n.Spec.ProviderID, t.ReplacementProviderID) {
		return "", false
	}
	return name, seen
}

// nodeRemains reports whether a replacement that is gone has a Node still, which then goes first.
func (w *World) nodeRemains(t *Turn, s *Set) bool {
	n := w.Nodes[t.ReplacementNode]
	if n == nil && t.ReplacementProviderID != "" {
		n = w.find().nodes[strings.ToLower(t.ReplacementProviderID)]
	}
	if n == nil || !s.Known || !w.NodeGoes(t, n) {
		return false
	}
	t.Step, t.ReplacementNode = StepDeleteBack, n.Name
	return true
}

// stepToClear is what a replacement's node needs before its machine may be deleted. A member of etcd it may have also where there is no Node.
func (w *World) stepToClear(t *Turn, n *Node) Step {
	switch {
	case n == nil:
	case n.Claim == nil || n.Claim.Turn != t.Turn:
		w.forgetDrained(t, true)
		delete(w.Left, t.Key(true)) // It may have become a member since there was none.
		return StepHold
	case n.Claim.Cordoned == nil || !n.Spec.Unschedulable:
		w.forgetDrained(t, true)
		return StepCordonBack
	case w.Drains && !w.Drained[t.Key(true)]:
		return StepDrainBack
	}
	if w.ControlPlane && !w.Left[t.Key(true)] {
		return StepLeaveBack
	}
	if n == nil {
		delete(w.Left, t.Key(true)) // That holds for the moment: it may still become a member.
	}
	return StepNone
}

// NodeGoes reports whether a Node is that of a replacement which is gone: another may have its name by now.
func (w *World) NodeGoes(t *Turn, n *Node) bool {
	if _, m := w.MachineOf(n); m != nil && m.State != Deleting {
		return false
	}
	return n.Claim != nil && n.Claim.Turn == t.Turn || t.ReplacementProviderID != "" && strings.EqualFold(n.Spec.ProviderID, t.ReplacementProviderID)
}
