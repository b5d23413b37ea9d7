// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cloud"
	"moult.dev/moult/internal/kind/nodeturn"
)

// emptying handles a turn whose node is drained, and then leaves the control plane.
func (w *World) emptying(t *Turn) {
	switch {
	case !w.readyToDelete(t):
	case t.Phase == v1alpha1.MachineDraining:
		w.enter(t, v1alpha1.MachineLeaving)
	case w.Left[w.LeftKey(t, false)]:
		w.enter(t, v1alpha1.MachineDeleting)
	default:
		t.Step = StepLeave // This has no timeout: the node may have left in part.
	}
}

// readyToDelete reports whether the old machine may be deleted: its node is claimed, cordoned and drained, and its replacement is ready. If not, it
// moves the turn, or sets its step or message. This is checked until the deletion is ordered: others may have uncordoned the node.
func (w *World) readyToDelete(t *Turn) bool {
	s, n, bound, why := w.SetOf(t), w.oldNode(t), w.Bound(t), w.whyUnwanted(t)
	claimed := n != nil && n.Claim != nil && n.Claim.Turn == t.Turn
	switch {
	case !w.machineListed(t):
	case claimed && n.Claim.Failed != nil && !bound:
		t.Failed = n.Claim.Failed
		w.enter(t, v1alpha1.MachineDiscarding)
	case !t.DeletesFirst && s.Known && !w.replacementListed(t):
	case !s.Known && (n == nil || t.Phase != v1alpha1.MachineDraining): // Its Node may have been registered again.
	case t.Machine == "":
		return true
	case n != nil && !bound && !claimed:
		w.enter(t, v1alpha1.MachineClaiming)
	case why != "":
		w.discard(t, why)
	case !bound && w.turnExpired(t):
	default:
		if t.Step = w.stepToEmpty(t, n, false); t.Step == StepNone {
			return t.DeletesFirst || w.takesOver(t)
		}
		if t.Step != StepDrain { // Each pass begins with that, also once the node is drained.
			t.UnreadySince = nil
		}
	}
	return false
}

// takesOver reports whether the replacement is made and ready, so that the old machine may be deleted.
func (w *World) takesOver(t *Turn) bool {
	bound := w.Bound(t)
	if !bound && !w.isMade(t) {
		return false
	}
	return bound && t.Phase != v1alpha1.MachineDraining || w.staysReady(t, "the node is drained; its replacement is not ready any more: ")
}

// isMade reports whether the cloud has made the replacement. Its Node may join while its addition is under way. If the cloud could not make it, or not
// within Timeout, the turn fails.
func (w *World) isMade(t *Turn) bool {
	s := w.SetOf(t)
	m, what := s.Machine(t.Replacement), "machine "+t.Replacement+", the replacement, "
	adding := slices.IndexFunc(s.Operations, func(o v1alpha1.CloudOperation) bool {
		return o.Kind == v1alpha1.CloudOperationAdd && slices.Contains(o.Machines, t.Replacement)
	})
	switch {
	case m != nil && m.State == cloud.Failed:
		w.fail(t, v1alpha1.ReasonReplacementFailed, what+"has failed: "+m.Message)
	case adding < 0 || s.Known && (m == nil || m.State != cloud.Creating):
		return true
	case t.waitUntil(s.Operations[adding].Since.Add(w.Timeout), w.Now):
		t.Message = "the node is drained; " + what + "is still being made"
	default:
		w.fail(t, v1alpha1.ReasonReplacementFailed, what+"is not made within replacementReady.timeout, "+w.Timeout.String())
	}
	return false
}

// turnExpired fails a turn that takes longer than turnTimeout.
func (w *World) turnExpired(t *Turn) bool {
	n := w.oldNode(t)
	if n == nil || n.Claim == nil {
		return false
	}
	expiring := nodeturn.Turn{Node: n.Node, Claim: n.Claim}
	expiring.Expire(w.Strategy, t.Message, w.Now)
	t.wakeAt(expiring.Wake)
	if expiring.Step != nodeturn.StepFail {
		return false
	}
	w.fail(t, expiring.Failure.Reason, expiring.Failure.Message)
	return true
}

// stepToEmpty is what one of a turn's nodes needs before its machine may be deleted: the claim, the cordon, the drain. A replacement also leaves the
// control plane, even without a Node: it may have become a member.
func (w *World) stepToEmpty(t *Turn, n *Node, ofReplacement bool) Step {
	switch {
	case n == nil:
	case n.Claim == nil || n.Claim.Turn != t.Turn || n.Claim.Failed != nil:
		t.Message = "Node " + n.Name + " must be claimed before its machine is deleted"
		return StepClaim
	case n.Claim.Cordoned == nil || !n.Spec.Unschedulable:
		t.Message = ""
		return StepCordon
	case !ofReplacement && t.waitUntil(n.Claim.Cordoned.Add(w.Wait), w.Now):
		t.Message = "load balancers have time to take the node out until " + n.Claim.Cordoned.Add(w.Wait).UTC().Format(time.RFC3339)
		return StepWait
	case w.Drains && !w.Drained[t.Key(ofReplacement)]:
		return StepDrain
	}
	if ofReplacement && w.ControlPlane {
		key := w.LeftKey(t, true)
		if !w.Left[key] {
			return StepLeave
		}
		if n == nil {
			delete(w.Left, key) // The machine may still become a member.
		}
	}
	return StepNone
}

func (w *World) deleting(t *Turn) {
	s, n := w.SetOf(t), w.oldNode(t)
	switch m := s.Machine(t.Machine); {
	case t.Operation != "", m != nil && m.State == cloud.Deleting:
		w.awaitDeletion(t, s, n)
	case t.Machine != "":
		if w.readyToDelete(t) {
			w.orderDeletion(t, s, m)
		}
	case n != nil:
		t.Step, t.Message = StepDeleteNode, "the machine is gone, and its Node will be deleted"
	default:
		t.Node, t.NodeUID = "", ""
		next := v1alpha1.MachineSoaking
		if t.Replacement == "" {
			next = v1alpha1.MachineAdding
		}
		w.enter(t, next)
	}
}

// machineToDelete is the machine that a turn in this phase deletes.
func (t *Turn) machineToDelete() *string {
	if t.Phase == v1alpha1.MachineDiscarding {
		return &t.Replacement
	}
	return &t.Machine
}

// awaitDeletion handles a turn whose machine is being deleted, or whose deletion is recorded. If the deletion was not sent yet, for example before a
// restart, it is sent only while the node is drained.
func (w *World) awaitDeletion(t *Turn, s *Set, n *Node) {
	id, ofReplacement := *t.machineToDelete(), t.Phase == v1alpha1.MachineDiscarding
	t.Message = "machine " + id + " is being deleted"
	o, m := s.Operation(t.Operation), s.Machine(id)
	if o == nil || o.Sent || s.isGone(id) || m != nil && m.State == cloud.Deleting {
		return
	}
	t.Message = cmp.Or(s.Message, t.Message)
	t.Step = w.stepToEmpty(t, n, ofReplacement)
	if t.HoldsOperation = t.Step != StepNone; t.HoldsOperation {
		t.OnReplacement, t.Message = ofReplacement, "machine "+id+" is deleted once its node is emptied again"
	}
}

// orderDeletion sets the step that deletes a machine, unless the machine must stay.
func (w *World) orderDeletion(t *Turn, s *Set, m *cloud.Machine) {
	switch _, why := w.MustStay(m, nil); {
	case m == nil:
	case why != "":
		t.Message = why
	case t.DeletesFirst && !t.OnReplacement && s.Unfit != "":
		t.Message = s.Unfit // No machine would be added in its place.
	default:
		t.Step, t.Message = StepDelete, cmp.Or(s.Message, s.Unfit, "machine "+m.ID+" will be deleted")
	}
}

// AbsentNodes are the absent Nodes of turns, claimed by their rollout.
func AbsentNodes(holder string, uid types.UID, turns []v1alpha1.MachineTurn) (all []*corev1.Node) {
	for _, t := range turns {
		if t.Absent == nil {
			continue
		}
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: t.Absent.Name, Labels: t.Absent.Labels, Annotations: map[string]string{}}}
		n.ResourceVersion = nodeturn.Digest(t.Turn, t.Absent) // Different content needs a different version.
		n.Spec.Unschedulable = true
		// Formatting never fails here: the values were read from JSON.
		n.Annotations[v1alpha1.AnnotationClaims], _ = v1alpha1.FormatClaims([]v1alpha1.Claim{{Rollout: holder, UID: uid, Revision: t.Revision, Turn: t.Turn, Since: t.Since}})
		if len(t.Absent.Evicted) > 0 {
			evicted, _ := json.Marshal(t.Absent.Evicted) // Strings always marshal.
			n.Annotations[v1alpha1.AnnotationEvicted] = string(evicted)
		}
		all = append(all, n)
	}
	return all
}

// maxEvicted bounds how many controllers of evicted pods a turn records.
const maxEvicted = 100

// noteAbsent records the old Node of a turn that deletes first, until the replacement's Node exists: budgets count Nodes, and would not count a
// deleted one. It is recorded before the Node is deleted.
func (w *World) noteAbsent(t *Turn) {
	n := w.oldNode(t)
	going := t.Phase == v1alpha1.MachineLeaving || t.Phase == v1alpha1.MachineDeleting || t.Machine == ""
	switch {
	case t.Over || !t.DeletesFirst || n != nil && !going:
		t.Absent = nil
	case n != nil:
		// An unreadable record counts as empty: budgets report it.
		var evicted []string
		_ = json.Unmarshal([]byte(n.Annotations[v1alpha1.AnnotationEvicted]), &evicted)
		t.Absent = &v1alpha1.AbsentNode{Name: n.Name, Labels: maps.Clone(n.Labels), Evicted: evicted[:min(len(evicted), maxEvicted)]}
	case t.Absent != nil && w.ReplacementNode(t) != nil && len(t.Absent.Evicted) == 0:
		t.Absent = nil
	}
}
