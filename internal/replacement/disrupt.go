// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"moult.dev/moult/api/v1alpha1"
)

func (w *World) claiming(t *Turn) bool {
	s, n := w.set(t.ScaleSet), w.old(t)
	if why := w.unwanted(t); why != "" {
		return w.discard(t, why)
	}
	if gone, at := w.gone(s, t.Machine); gone {
		return w.vanished(t)
	} else if t.at(at); !at.IsZero() || !s.Known {
		return false
	}
	if n != nil && n.Claim != nil && n.Claim.Turn == t.Turn {
		return w.enter(t, v1alpha1.MachineDraining)
	}
	if !t.DeletesFirst {
		if moved, ok := w.keepsReady(t, s); !ok {
			return moved
		}
	}
	if n == nil && (t.Node != "" || t.Machine == "") {
		return w.leave(t) // Its Node is gone before its machine.
	}
	if n == nil {
		// It never had one. What holds for nodes that are claimed holds for it, too.
		t.Message = w.kept(t, s.Machine(t.Machine))
		t.Claimable = t.Message == ""
		return false
	}
	if w.Bound(t) {
		return w.reclaims(t, n)
	}
	if n.Claim == nil && n.Marked && !n.Unreadable && !n.Foreign {
		// Somebody has taken its claim away. It is given back before it is claimed again: by its cordon it would be in its own way.
		t.Step, t.Message = StepRelease, "the claim on Node "+n.Name+" was taken away"
		return false
	}
	t.Message = w.kept(t, s.Machine(t.Machine))
	t.Claimable = t.Message == ""
	return false
}

// keepsReady reports whether the replacement of a turn that was ready still is.
func (w *World) keepsReady(t *Turn, s *Set) (moved, ok bool) {
	m := s.Machine(t.Replacement)
	if m == nil || m.State == Failed || w.chooses(t) && w.Outdated(s, m, w.NodeOf(m)) {
		w.enter(t, v1alpha1.MachineJoining)
		return m != nil || w.bereft(t), false
	}
	if why, next := w.unready(t); why != "" {
		t.at(next)
		return w.wavers(t, "the replacement is not ready any more: "+why), false
	}
	t.UnreadySince = nil
	return false, true
}

// kept says why a turn's node, whose replacement is ready, may not be claimed yet, or "".
func (w *World) kept(t *Turn, m *Machine) string {
	switch {
	case m != nil && w.doubled(m) != "":
		return w.doubled(m)
	case m != nil && m.Protected:
		return protected(m)
	case w.stray(w.old(t)) != "":
		return w.stray(w.old(t))
	case t.DeletesFirst && w.set(t.ScaleSet).least():
		return w.set(t.ScaleSet).tooFew()
	}
	return w.locked(t)
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
	return "the cloud is told not to let machine " + m.ID + " be deleted: take its protection off"
}

// vanished is a turn whose machine has gone by itself. If the set is to have a machine less since, the replacement has taken its place.
func (w *World) vanished(t *Turn) bool {
	s := w.set(t.ScaleSet)
	switch {
	case t.DeletesFirst && t.Phase == v1alpha1.MachineDeleting && s.Lost > 0:
		s.Lost-- // It was asked for, whatever the cloud says became of that, and is to be made up for.
		t.Machine = ""
		return true
	case t.DeletesFirst:
		return w.discard(t, "machine "+t.Machine+" has gone by itself")
	}
	if s.Lost <= 0 {
		return w.discard(t, "machine "+t.Machine+" has gone by itself, and the cloud makes another in its place")
	}
	s.Lost--
	t.DeletesFirst, t.Machine = true, ""
	if t.Phase == v1alpha1.MachineJoining {
		return true
	}
	return w.leave(t)
}

func (w *World) leave(t *Turn) bool {
	if w.ControlPlane {
		return w.enter(t, v1alpha1.MachineLeaving)
	}
	return w.enter(t, v1alpha1.MachineDeleting)
}

// disturbed is a turn in the middle of its disruption that does not go on as it is.
func (w *World) disturbed(t *Turn, all []*Turn) (moved, stop bool) {
	s, n := w.set(t.ScaleSet), w.old(t)
	if gone, at := w.gone(s, t.Machine); gone {
		return w.vanished(t), true
	} else if t.at(at); !at.IsZero() {
		t.Message = "machine " + t.Machine + " is not listed by the cloud"
		return false, true
	}
	if n != nil && n.Claim != nil && n.Claim.Turn == t.Turn && n.Claim.Failed != nil && !w.Bound(t) {
		t.Failed = n.Claim.Failed
		return w.enter(t, v1alpha1.MachineDiscarding), true
	}
	if t.DeletesFirst {
		return false, false
	}
	if t.Replacement == "" {
		m := w.newcomer(t, s, all)
		if m == nil {
			t.Message = "no machine has come to scale set " + s.Name + " that could take the place"
			return false, true
		}
		t.Replacement = m.ID
	}
	if m := s.Machine(t.Replacement); m != nil {
		t.joins(m, w.NodeOf(m))
	}
	if gone, at := w.gone(s, t.Replacement); gone {
		return w.bereft(t), true
	} else if t.at(at); !at.IsZero() {
		t.Message = "machine " + t.Replacement + ", which is to take the place, is not listed by the cloud"
		return false, true
	}
	return false, false
}

// expired reports whether a turn has taken longer than it may.
func (w *World) expired(t *Turn) bool {
	n := w.old(t)
	if w.TurnTimeout == 0 || n == nil || n.Claim == nil {
		return false
	}
	deadline := n.Claim.Since.Add(w.TurnTimeout)
	if w.Now.Before(deadline) {
		t.at(deadline)
		return false
	}
	message := fmt.Sprintf("the turn of Node %s took longer than turnTimeout, %s", t.Node, w.TurnTimeout)
	if t.Message != "" {
		message += "; " + t.Message
	}
	return w.fail(t, v1alpha1.ReasonTurnTimeout, message)
}

func (w *World) draining(t *Turn, all []*Turn) bool {
	if moved, stop := w.disturbed(t, all); stop {
		return moved
	}
	n := w.old(t)
	if n == nil {
		return w.set(t.ScaleSet).Known && w.leave(t)
	}
	if n.Claim == nil || n.Claim.Turn != t.Turn {
		w.forget(t, false)
		return w.enter(t, v1alpha1.MachineClaiming) // Somebody has taken the claim away.
	}
	if why := w.unwanted(t); why != "" {
		return w.discard(t, why)
	}
	if !w.Bound(t) && w.expired(t) {
		return true
	}
	if t.Step = w.emptying(t, n); t.Step != StepNone {
		t.UnreadySince = nil
		return false
	}
	if !t.DeletesFirst {
		if why, next := w.unready(t); why != "" {
			t.at(next)
			t.Step = StepTell
			return w.wavers(t, "the node is drained; its replacement is not ready any more: "+why)
		}
	}
	return w.leave(t)
}

// wavers is a turn whose replacement was ready, and is not any more. It fails once that has lasted for as long as it had to become ready.
func (w *World) wavers(t *Turn, why string) bool {
	if t.UnreadySince == nil {
		since := stamp(w.Now)
		t.UnreadySince = &since
	}
	t.Message = why
	if deadline := t.UnreadySince.Add(w.Timeout); w.Now.Before(deadline) {
		t.at(deadline)
		return false
	}
	if w.Bound(t) {
		return w.enter(t, v1alpha1.MachineJoining) // Where it fails and is tried again with another.
	}
	return w.fail(t, v1alpha1.ReasonReplacementFailed, fmt.Sprintf("for longer than replacementReady.timeout, %s, %s", w.Timeout, why))
}

// emptying is what the node that goes, which is claimed, needs until it is cordoned and drained.
func (w *World) emptying(t *Turn, n *Node) Step {
	if n.Claim.Cordoned == nil || !n.Spec.Unschedulable {
		w.forget(t, false)
		t.Message = ""
		return StepCordon
	}
	since := n.Claim.Cordoned.Add(w.Wait)
	switch {
	case w.Now.Before(since):
		t.at(since)
		t.Message = "load balancers take the node out until " + since.UTC().Format(time.RFC3339)
		return StepTell
	case w.Drains && !w.Drained[t.Key(false)]:
		return StepDrain
	}
	return StepNone
}

// empty reports whether the node that goes is claimed, cordoned and drained still, at the last moment at which that matters: anybody may have uncordoned
// it since it was. A turn whose node is not goes back, or does again what is missing where it can't.
func (w *World) empty(t *Turn, n *Node) (moved, ok bool) {
	mine := n.Claim != nil && n.Claim.Turn == t.Turn && n.Claim.Failed == nil
	switch {
	case !mine && w.Bound(t):
		return w.reclaims(t, n), false
	case !mine:
		w.forget(t, false)
		return w.enter(t, v1alpha1.MachineClaiming), false
	}
	step := w.emptying(t, n)
	switch {
	case step == StepNone:
		return false, true
	case w.Bound(t):
		t.Step = step
		return false, false
	}
	return w.enter(t, v1alpha1.MachineDraining), false
}

// reclaims is a turn that can't be given up, and whose node has lost its claim.
func (w *World) reclaims(t *Turn, n *Node) bool {
	w.forget(t, false)
	t.Step, t.Message = StepClaim, "somebody has taken the claim on Node "+n.Name+" away, and it can't be given back any more"
	return false
}

func (w *World) leaving(t *Turn, all []*Turn) bool {
	if moved, stop := w.disturbed(t, all); stop {
		return moved
	}
	if !w.set(t.ScaleSet).Known {
		return false // Its Node may have been registered again.
	}
	if n := w.old(t); n != nil && t.Machine != "" {
		if moved, ok := w.empty(t, n); !ok {
			return moved
		}
	}
	if w.Left[t.Key(false)] {
		return w.enter(t, v1alpha1.MachineDeleting)
	}
	// It does not fail for the time it takes: half of it may have left already.
	t.Step = StepLeave
	return false
}

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
	switch {
	case m == nil:
	case w.doubled(m) != "":
		t.Message = w.doubled(m)
	case m.Protected:
		t.Message = protected(m)
	default:
		t.Step, t.Message = StepDelete, or(s.Message, "machine "+t.Machine+" is to be deleted")
	}
	return false
}

func (w *World) soaking(t *Turn) bool {
	s, n := w.set(t.ScaleSet), w.fresh(t)
	if gone, at := w.gone(s, t.Replacement); gone {
		t.Over = !w.behind(t) && !w.buried(t, s)
		t.Updated = t.Over
		return false
	} else if m := s.Machine(t.Replacement); w.ControlPlane && s.Known && (m == nil || m.State == Deleting) {
		t.at(at)
		t.Message = "machine " + t.Replacement + ", which has taken the place, goes: its node is to leave the control plane"
		return false
	} else if t.at(at); n == nil {
		return w.ill(t, nil, "the node of machine "+t.Replacement+" is not there")
	}
	t.ReplacementNode = n.Name
	if w.Ending || n.OptedOut || !n.Selected {
		return w.finish(t, n)
	}
	if why, next := w.Unhealthy(n.Name); why != "" {
		t.at(next)
		return w.ill(t, n, why)
	}
	if why, next := w.Unstable(t, n.Name); why != "" {
		t.at(next)
		return w.ill(t, n, why)
	}
	t.Message, t.Failed = "", nil
	if end := w.SoakEnd(n.Name, t.PhaseSince.Time); w.Now.Before(end) {
		t.at(end)
		return false
	}
	return w.finish(t, n)
}

// ill is a turn whose replacement, which has the place, is not well. It has failed once that has lasted for as long as it had to become ready, and until
// it is well: there is nothing to go back to.
func (w *World) ill(t *Turn, n *Node, why string) bool {
	since := t.PhaseSince.Time
	if n != nil {
		for i := range n.Status.Conditions {
			if c := &n.Status.Conditions[i]; c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue && c.LastTransitionTime.After(since) {
				since = c.LastTransitionTime.Time
			}
		}
	}
	t.Message = why
	if deadline := since.Add(w.Timeout); w.Now.Before(deadline) {
		t.at(deadline)
		return false
	}
	if t.Failed == nil {
		message := fmt.Sprintf("machine %s has taken the place, and is not well for longer than replacementReady.timeout, %s: %s", t.Replacement, w.Timeout, why)
		t.Failed = &v1alpha1.ClaimFailure{Reason: v1alpha1.ReasonReplacementFailed, Message: short(message), Time: stamp(w.Now)}
	}
	return false
}

// finish ends a turn well, once nothing of it is left on the replacement's node.
func (w *World) finish(t *Turn, n *Node) bool {
	if n.Shielded {
		t.Step = StepFinish
		return false
	}
	t.Over, t.Updated = true, true
	return false
}
