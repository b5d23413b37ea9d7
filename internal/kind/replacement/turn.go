// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"cmp"
	"time"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/kind/nodeturn"
	"moult.dev/moult/internal/rollout"
)

// Step is what a turn, or a node in no turn, needs next.
type Step string

// The steps.
const (
	StepNone       Step = ""
	StepAdd        Step = "add"         // ask the cloud for a machine
	StepDelete     Step = "delete"      // ask the cloud to delete a machine
	StepClaim      Step = "claim"       // claim the node of a machine that must be deleted
	StepCordon     Step = "cordon"      // cordon the node
	StepDrain      Step = "drain"       // continue the drain of the node
	StepWait       Step = "wait"        // wait until load balancers have taken the node out
	StepLeave      Step = "leave"       // take the node out of the control plane
	StepDeleteNode Step = "delete-node" // delete the Node: its machine is gone
	StepFail       Step = "fail"        // record in the claim why the turn failed, and uncordon the node
	StepRelease    Step = "release"     // release the node
)

// Turn is the turn of a machine, with the result of Judge.
type Turn struct {
	v1alpha1.MachineTurn
	Step Step
	// OnReplacement is true if Step is for the node or machine of the replacement, and not for the old one.
	OnReplacement bool
	// Stepped is true once the node is drained, or the Node deleted, in this pass.
	Stepped bool
	Unit    rollout.Unit
	// Over is true when nothing is left to do, and Updated if the machine was replaced.
	Over, Updated bool
	// Wake is when to judge the turn again at the latest.
	Wake time.Time
	// Claimable is true if the turn is ready to claim its node. Budgets may still prevent it.
	Claimable bool
	// Drainable is true if the drain of the node to be claimed is known to be possible.
	Drainable bool
	// HoldsOperation is true if the turn's recorded operation must not be sent yet: the node is not drained.
	HoldsOperation bool
	// WhyNotJoined says why the replacement is not a member of the control plane. WhyOldMustStay says why the old node can't leave it, and
	// WhyReplacementMustStay why a replacement that failed can't.
	WhyNotJoined, WhyOldMustStay, WhyReplacementMustStay string
	// moved is true if the turn has changed, and must be judged again.
	moved bool
	// Confirmed is true when the cloud has just confirmed the deletion of the machine whose Node is deleted next.
	Confirmed bool
}

func (t *Turn) wakeAt(when time.Time) {
	t.Wake = rollout.Earlier(t.Wake, when)
}

// waitUntil reports whether a time is in the future. If so, it wakes the turn then.
func (t *Turn) waitUntil(when, now time.Time) bool {
	if !now.Before(when) {
		return false
	}
	t.wakeAt(when)
	return true
}

// Key identifies one of a turn's two nodes in Drained.
func (t *Turn) Key(ofReplacement bool) string {
	if ofReplacement {
		return t.Turn + "/replacement"
	}
	return t.Turn
}

// LeftKey identifies one of a turn's two nodes in Left. A new Node or machine has a new key: it has not left.
func (w *World) LeftKey(t *Turn, ofReplacement bool) string {
	n, id := w.oldNode(t), t.Machine
	if ofReplacement {
		n, id = w.ReplacementNode(t), t.Replacement
	}
	key := t.Key(ofReplacement) + "/" + id
	if n != nil {
		key += "/" + string(n.UID)
	}
	return key
}

// Bound reports whether a turn can't be cancelled any more: its node may have left the control plane already.
func (w *World) Bound(t *Turn) bool {
	return t.Bound || t.Phase == v1alpha1.MachineLeaving || t.Phase == v1alpha1.MachineDeleting && w.ControlPlane
}

// mustRestore reports whether the turn has deleted, or lost, a machine that nothing has replaced yet.
func (t *Turn) mustRestore() bool { return t.DeletesFirst && t.Machine == "" }

// needsReplacement reports whether a turn must have a replacement, even if it has lost one.
func (w *World) needsReplacement(t *Turn) bool {
	return t.mustRestore() || w.Bound(t) && !w.SetOf(t).isGone(t.Machine)
}

// oldName names the old node or machine in messages.
func (t *Turn) oldName() string { return cmp.Or(t.Node, t.Machine, "one that is gone") }

// isSurplus reports whether the set has an extra machine for the turn, or soon will.
func (t *Turn) isSurplus() bool {
	return !t.DeletesFirst && t.Phase != v1alpha1.MachineSoaking && (t.Phase != v1alpha1.MachineDiscarding || t.Replacement != "" || t.Bound)
}

// enter moves a turn to a phase; without a control plane Deleting replaces Leaving. While one of its machines is not listed, PhaseSince stays: a
// machine made since then may be its successor.
func (w *World) enter(t *Turn, phase v1alpha1.MachinePhase) {
	if phase == v1alpha1.MachineLeaving && !w.ControlPlane {
		phase = v1alpha1.MachineDeleting
	}
	s := w.SetOf(t)
	if !s.isMissing(t.Replacement) && !s.isMissing(t.Machine) {
		t.PhaseSince = *nodeturn.Stamp(w.Now)
	}
	t.Phase, t.UnreadySince, t.Message, t.moved = phase, nil, "", true
}

// fail ends a failed turn: its replacement and cordon are removed.
func (w *World) fail(t *Turn, reason v1alpha1.Reason, message string) {
	t.Failed = &v1alpha1.ClaimFailure{Reason: reason, Message: nodeturn.Short(message), Time: *nodeturn.Stamp(w.Now)}
	w.enter(t, v1alpha1.MachineDiscarding)
}

// discard ends a turn without a change.
func (w *World) discard(t *Turn, why string) {
	w.enter(t, v1alpha1.MachineDiscarding)
	t.Message = why
}

// whyUnwanted says why the turn's machine must not be replaced any more, or "".
func (w *World) whyUnwanted(t *Turn) string {
	s, n := w.SetOf(t), w.oldNode(t)
	m := s.Machine(t.Machine)
	switch {
	case t.mustRestore(), w.Bound(t):
		return ""
	case w.Ending:
		return "the rollout is being deleted"
	case w.DetectOnly:
		return "the rollout only detects"
	case !w.isFor(t.ScaleSet):
		return "the rollout is not for scale set " + t.ScaleSet + " any more"
	case n != nil && n.OptedOut:
		return "the node's label opts it out"
	case n != nil && !n.Selected:
		return "the rollout does not select the node any more"
	case m != nil && !w.Outdated(s, m, n):
		return "the machine is up to date"
	}
	return ""
}

// Judge advances turns as far as possible without any action, and sets what each needs next. Phases may change: the caller writes them to status
// before it acts. It also returns new turns, which discard machines that no turn waits for.
func (w *World) Judge(turns []*Turn) []*Turn {
	w.turns = turns
	w.ids()
	w.settle()
	for _, t := range w.turns {
		// If the scale set is deleted, the turn is over and its claims are released.
		t.Over = t.Over || w.SetOf(t).Deleted
		w.noteNewNode(t)
		w.JudgeTurn(t)
	}
	return w.turns
}

// JudgeTurn judges one turn, also again after its step.
func (w *World) JudgeTurn(t *Turn) {
	t.moved = true
	for i := 0; i < 12 && t.moved && !t.Over; i++ {
		w.advance(t)
	}
	w.noteAbsent(t)
	w.setUnit(t)
}

// noteNewNode records the new Node of the old machine if it was registered again.
func (w *World) noteNewNode(t *Turn) {
	m := w.SetOf(t).Machine(t.Machine)
	if m == nil || w.oldNode(t) != nil {
		return
	}
	if n := w.NodeOf(m); n != nil {
		t.Node, t.NodeUID = n.Name, n.UID
	}
}

// phases are what a turn does in each phase.
var phases = map[v1alpha1.MachinePhase]func(*World, *Turn){
	v1alpha1.MachineAdding:     (*World).adding,
	v1alpha1.MachineJoining:    (*World).joining,
	v1alpha1.MachineClaiming:   (*World).claiming,
	v1alpha1.MachineDraining:   (*World).emptying,
	v1alpha1.MachineLeaving:    (*World).emptying,
	v1alpha1.MachineDeleting:   (*World).deleting,
	v1alpha1.MachineSoaking:    (*World).soaking,
	v1alpha1.MachineDiscarding: (*World).discarding,
}

// advance moves a turn to its next phase, or sets the step that it needs first.
func (w *World) advance(t *Turn) {
	t.Step, t.OnReplacement, t.Claimable, t.HoldsOperation, t.moved = StepNone, false, false, false, false
	if phases[t.Phase] == nil {
		w.discard(t, "its phase is not known")
	}
	phases[t.Phase](w, t)
}

// setUnit sets the unit of a turn.
func (w *World) setUnit(t *Turn) {
	n := w.oldNode(t)
	t.Unit = rollout.Unit{Node: t.UnitName(), State: v1alpha1.UnitUpdating, Since: t.Since.Time}
	u := &t.Unit
	if n != nil && n.Claim != nil {
		u.Claimed, u.Retried = !n.Claim.RecordsResult(), n.Claim.Failed != nil && !n.Claim.Skipped()
	}
	switch t.Phase {
	case v1alpha1.MachineAdding, v1alpha1.MachineJoining, v1alpha1.MachineClaiming:
		if t.Machine == "" && t.Phase != v1alpha1.MachineClaiming || w.Bound(t) {
			break
		}
		// A replacement that is ready costs money while it waits, so its node goes before nodes without one.
		u.State, u.InTurn, u.Down = v1alpha1.UnitOutdated, true, t.Phase == v1alpha1.MachineClaiming
		if !t.Claimable {
			u.Reason, u.Message = w.whyWaiting(t)
		}
	case v1alpha1.MachineSoaking:
		u.State, u.Since = v1alpha1.UnitSoaking, t.PhaseSince.Time
	default:
	}
	if f := t.Failed; f != nil {
		u.State, u.InTurn, u.Reason, u.Message, u.Since, u.Skipped = v1alpha1.UnitFailed, false, f.Reason, f.Message, f.Time.Time, f.Skipped
		u.RetryAt = w.retryAt(t)
	}
}

// UnitOf is the unit of a turn by its status alone: the cloud is not read. A turn in phase Claiming counts as claimable.
func (w *World) UnitOf(turn *v1alpha1.MachineTurn) rollout.Unit {
	t := &Turn{MachineTurn: *turn, Claimable: turn.Phase == v1alpha1.MachineClaiming}
	w.setUnit(t)
	return t.Unit
}

// nextAttempt is when strategy.retries tries a failed turn again; zero means never.
func (w *World) nextAttempt(t *Turn) time.Time {
	return nodeturn.RetryAt(w.Strategy, &v1alpha1.Claim{Failed: t.Failed, Failures: t.Failures + 1})
}

// retryAt is when a failed turn is tried again; zero means never. After that time the retry follows once the replacement is deleted. A turn in phase
// Adding or Soaking is not tried again: it recovers by itself.
func (w *World) retryAt(t *Turn) time.Time {
	at := w.nextAttempt(t)
	switch {
	case t.Phase == v1alpha1.MachineAdding, t.Phase == v1alpha1.MachineSoaking:
		return time.Time{}
	case !at.IsZero() && !w.Now.Before(at):
		return w.Now.Add(time.Minute)
	}
	return at
}

// whyWaiting is why a turn's node can't be claimed yet.
func (w *World) whyWaiting(t *Turn) (v1alpha1.Reason, string) {
	s := w.SetOf(t)
	o, m := s.Operation(t.Operation), s.Machine(t.Machine)
	asks := t.Step == StepAdd || o != nil && !o.Sent
	stays, _ := w.MustStay(m, w.oldNode(t))
	switch {
	case asks && s.Reason != "":
		return s.Reason, s.Message
	case t.Step == StepAdd && s.Unfit != "":
		return v1alpha1.ReasonScaleSetUnfit, "scale set " + s.Name + ": " + s.Unfit
	case asks && s.NoRoom != "":
		return s.NoRoom, s.NoRoomMessage
	case t.Phase != v1alpha1.MachineClaiming || m == nil:
	case stays != "":
		return stays, t.Message
	case t.WhyNotJoined != "", t.WhyOldMustStay != "":
		return v1alpha1.ReasonEtcdUnhealthy, t.Message
	}
	return v1alpha1.ReasonReplacementPending, cmp.Or(t.Message, "the cloud has not been asked yet")
}
