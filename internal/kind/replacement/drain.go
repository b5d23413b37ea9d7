// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"fmt"
	"time"

	"moult.dev/moult/api/v1alpha1"
)

func (w *World) enterLeaving(t *Turn) bool {
	if w.ControlPlane {
		return w.enter(t, v1alpha1.MachineLeaving)
	}
	return w.enter(t, v1alpha1.MachineDeleting)
}

// checkMachines is a turn in the middle of its disruption that does not go on as it is.
func (w *World) checkMachines(t *Turn, all []*Turn) (moved, stop bool) {
	s, n := w.set(t.ScaleSet), w.oldNode(t)
	if gone, at := w.gone(s, t.Machine); gone {
		return w.machineLost(t, all), true
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
		w.awaitReplacement(t)
		return true, true
	}
	if m := s.Machine(t.Replacement); m != nil {
		t.noteReplacementNode(m, w.NodeOf(m))
	}
	if gone, at := w.gone(s, t.Replacement); gone {
		return w.replacementLost(t), true
	} else if t.at(at); !at.IsZero() {
		t.Message = "machine " + t.Replacement + ", which is to take the place, is not listed by the cloud"
		return false, true
	}
	return false, w.replacementDeleting(t, s.Machine(t.Replacement))
}

// turnExpired reports whether a turn has taken longer than it may.
func (w *World) turnExpired(t *Turn) bool {
	n := w.oldNode(t)
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
	if moved, stop := w.checkMachines(t, all); stop {
		return moved
	}
	n := w.oldNode(t)
	if n == nil {
		return w.set(t.ScaleSet).Known && w.enterLeaving(t)
	}
	if n.Claim == nil || n.Claim.Turn != t.Turn {
		w.forgetDrained(t, false)
		return w.enter(t, v1alpha1.MachineClaiming) // Somebody has taken the claim away.
	}
	if why := w.whyUnwanted(t); why != "" {
		return w.discard(t, why)
	}
	if !w.Bound(t) && w.turnExpired(t) {
		return true
	}
	if t.Step = w.stepToEmpty(t, n); t.Step != StepNone {
		t.UnreadySince = nil
		return false
	}
	if !t.DeletesFirst {
		if why, next := w.notReady(t); why != "" {
			t.at(next)
			t.Step = StepTell
			return w.replacementUnready(t, "the node is drained; its replacement is not ready any more: "+why)
		}
	}
	return w.enterLeaving(t)
}

// replacementUnready is a turn whose replacement was ready, and is not any more. It fails once that has lasted for as long as it had to become ready.
func (w *World) replacementUnready(t *Turn, why string) bool {
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

// stepToEmpty is what the node that goes, which is claimed, needs until it is cordoned and drained.
func (w *World) stepToEmpty(t *Turn, n *Node) Step {
	if n.Claim.Cordoned == nil || !n.Spec.Unschedulable {
		w.forgetDrained(t, false)
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

// isEmpty reports whether the node that goes is claimed, cordoned and drained still, at the last moment at which that matters: anybody may have uncordoned
// it since it was. A turn whose node is not goes back, or does again what is missing where it can't.
func (w *World) isEmpty(t *Turn, n *Node) (moved, ok bool) {
	mine := n.Claim != nil && n.Claim.Turn == t.Turn && n.Claim.Failed == nil
	switch {
	case !mine && w.Bound(t):
		return w.claimAgain(t, n), false
	case !mine:
		w.forgetDrained(t, false)
		return w.enter(t, v1alpha1.MachineClaiming), false
	}
	step := w.stepToEmpty(t, n)
	switch {
	case step == StepNone:
		return false, true
	case w.Bound(t):
		t.Step = step
		return false, false
	}
	return w.enter(t, v1alpha1.MachineDraining), false
}

// claimAgain is a turn that can't be released, and whose node has lost its claim.
func (w *World) claimAgain(t *Turn, n *Node) bool {
	w.forgetDrained(t, false)
	t.Step, t.Message = StepClaim, "somebody has taken the claim on Node "+n.Name+" away, and the turn can't be released any more"
	return false
}

func (w *World) leaving(t *Turn, all []*Turn) bool {
	if moved, stop := w.checkMachines(t, all); stop {
		return moved
	}
	if !w.set(t.ScaleSet).Known {
		return false // Its Node may have been registered again.
	}
	if n := w.oldNode(t); n != nil && t.Machine != "" {
		if moved, ok := w.isEmpty(t, n); !ok {
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
