// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"time"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/rollout"
)

// Step is what a turn needs next.
type Step int

// The steps of turns, and of nodes that are in none.
const (
	StepNone       Step = iota
	StepAdd             // a machine is to be added
	StepDelete          // the machine that goes is to be deleted
	StepDiscard         // the replacement is to be deleted
	StepShield          // keep the cluster autoscaler from the replacement's node
	StepCordon          // cordon the node that goes
	StepDrain           // take its drain as far as it goes now
	StepTell            // say in its conditions how the turn stands
	StepLeave           // let it leave the control plane, a step further
	StepDeleteNode      // delete the Node that goes: its machine is gone
	StepFail            // record in the claim on the node that goes why the turn failed, and release the node
	StepRelease         // release the node that goes
	StepHold            // claim the node of a replacement that is discarded
	StepCordonBack      // cordon it
	StepDrainBack       // drain it
	StepLeaveBack       // let it leave the control plane
	StepDeleteBack      // delete its Node: its machine is gone
	StepClaim           // claim the node that goes again: its turn can't be released any more
	StepFinish          // the replacement has taken the place: nothing keeps the cluster autoscaler from it any more
)

// Turn is the turn of a machine, as it is judged.
type Turn struct {
	v1alpha1.MachineTurn
	Step Step
	Unit rollout.Unit
	// Over is true when nothing is left to be done: the entry goes. Updated is true if the machine was replaced.
	Over, Updated bool
	// Wake is when the clock alone changes something.
	Wake time.Time
	// Claimable is true when the node may be claimed now, as far as the turn is concerned.
	Claimable bool
}

func (t *Turn) at(when time.Time) {
	if !when.IsZero() && (t.Wake.IsZero() || when.Before(t.Wake)) {
		t.Wake = when
	}
}

// Key of a turn and one of its nodes, in Drained, Left and Deleted.
func (t *Turn) Key(back bool) string {
	if back {
		return t.Turn + "/back"
	}
	return t.Turn
}

// Bound reports whether a turn is never released any more: its node may have left the control plane already, and would be of no use.
func (w *World) Bound(t *Turn) bool {
	return t.Bound || t.Phase == v1alpha1.MachineLeaving || t.Phase == v1alpha1.MachineDeleting && w.ControlPlane
}

// needsReplacement reports whether a turn needs a replacement, whatever has become of the one it had: its machine is to be made up for, or is bound to go.
func (w *World) needsReplacement(t *Turn) bool {
	gone, _ := w.gone(w.set(t.ScaleSet), t.Machine)
	return t.mustRestore() || w.Bound(t) && !gone
}

// forgetDrained takes back that one of a turn's nodes is drained: pods may have come to it since.
func (w *World) forgetDrained(t *Turn, back bool) { delete(w.Drained, t.Key(back)) }

// Surplus reports whether the set has a machine more than before for the turn, or is about to.
func (t *Turn) Surplus() bool {
	switch t.Phase {
	case v1alpha1.MachineSoaking:
		return false
	case v1alpha1.MachineDiscarding:
		return (t.Replacement != "" || t.Bound) && !t.DeletesFirst
	case v1alpha1.MachineAdding, v1alpha1.MachineJoining, v1alpha1.MachineClaiming, v1alpha1.MachineDraining, v1alpha1.MachineLeaving, v1alpha1.MachineDeleting:
	}
	return !t.DeletesFirst
}

// enter takes a turn into a phase. While one of its machines is not listed the phase keeps its time: what came since may have been made in its place.
func (w *World) enter(t *Turn, phase v1alpha1.MachinePhase) bool {
	s := w.set(t.ScaleSet)
	isListed := func(id string) bool { return id == "" || !s.Known || s.Machine(id) != nil }
	if isListed(t.Replacement) && isListed(t.Machine) {
		t.PhaseSince = stamp(w.Now)
	}
	t.Phase, t.UnreadySince, t.Message = phase, nil, ""
	return true
}

// mustRestore reports whether the turn has deleted, or lost, a machine that is to be made up for, whatever anybody wants now.
func (t *Turn) mustRestore() bool { return t.DeletesFirst && t.Machine == "" }

// fail ends a turn badly: what it leaves behind is cleared away.
func (w *World) fail(t *Turn, reason v1alpha1.Reason, message string) bool {
	t.Failed = &v1alpha1.ClaimFailure{Reason: reason, Message: short(message), Time: stamp(w.Now)}
	return w.enter(t, v1alpha1.MachineDiscarding)
}

// failsInPlace notes that a turn has failed which stays in its phase all the same.
func (w *World) failsInPlace(t *Turn, why string) {
	t.Message = why
	if t.Failed == nil {
		t.Failed = &v1alpha1.ClaimFailure{Reason: v1alpha1.ReasonReplacementFailed, Message: short(why), Time: stamp(w.Now)}
	}
}

// discard ends a turn without a change.
func (w *World) discard(t *Turn, why string) bool {
	w.enter(t, v1alpha1.MachineDiscarding)
	t.Message = why
	return true
}

const longest = 1024

func short(message string) string {
	if len(message) > longest {
		return message[:longest-3] + "..."
	}
	return message
}

// whyUnwanted says why the turn's machine is not to be replaced any more, or "".
func (w *World) whyUnwanted(t *Turn) string {
	s, n := w.set(t.ScaleSet), w.oldNode(t)
	m := s.Machine(t.Machine)
	switch {
	case s.Absent:
		return "scale set " + s.Name + " is gone"
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
	case m != nil && s.Known && !w.Outdated(s, m, n):
		return "the machine is what it is to be"
	}
	return ""
}

// Judge takes turns as far as they get without anything being done, and says what is to be done next. Some get into other phases: that is to be
// written down before anything is done. New ones may come to those that were given: of machines that nobody has asked for.
func (w *World) Judge(turns []*Turn) []*Turn {
	turns = w.settle(turns)
	for _, t := range turns {
		w.noteNewNode(t)
		for range 12 {
			if t.Over || !w.advance(t, turns) {
				break
			}
			t.Step = StepNone
		}
		w.noteAbsent(t)
		w.setUnit(t)
	}
	return turns
}

// noteNewNode takes account of a Node that was registered again: nothing that was done to the one before has been done to this one.
func (w *World) noteNewNode(t *Turn) {
	m := w.set(t.ScaleSet).Machine(t.Machine)
	if m == nil || t.Phase == v1alpha1.MachineSoaking || w.oldNode(t) != nil {
		return
	}
	n := w.NodeOf(m)
	if n == nil {
		return
	}
	t.Node, t.NodeUID = n.Name, n.UID
	w.forgetDrained(t, false)
	delete(w.Left, t.Key(false))
}

// advance takes a turn into its next phase if it has come so far, or else says what it needs.
func (w *World) advance(t *Turn, all []*Turn) bool {
	t.Step, t.Claimable = StepNone, false
	switch t.Phase {
	case v1alpha1.MachineAdding:
		return w.adding(t, all)
	case v1alpha1.MachineJoining:
		return w.joining(t, all)
	case v1alpha1.MachineClaiming:
		return w.claiming(t, all)
	case v1alpha1.MachineDraining:
		return w.draining(t, all)
	case v1alpha1.MachineLeaving:
		return w.leaving(t, all)
	case v1alpha1.MachineDeleting:
		return w.deleting(t, all)
	case v1alpha1.MachineSoaking:
		return w.soaking(t)
	case v1alpha1.MachineDiscarding:
		return w.discarding(t, all)
	default:
		return w.discard(t, "its phase is not known")
	}
}

func or(text, other string) string {
	if text != "" {
		return text
	}
	return other
}

// setUnit is the unit of a turn.
func (w *World) setUnit(t *Turn) {
	n := w.oldNode(t)
	t.Unit = rollout.Unit{Node: t.UnitName(), State: v1alpha1.UnitUpdating, Since: t.Since.Time, Claimed: n != nil && n.Claim != nil && !n.Claim.Skipped()}
	u := &t.Unit
	switch t.Phase {
	case v1alpha1.MachineAdding, v1alpha1.MachineJoining:
		if t.Machine != "" && !w.Bound(t) {
			u.State, u.InTurn = v1alpha1.UnitOutdated, true
			u.Reason, u.Message = w.waiting(t)
		}
	case v1alpha1.MachineClaiming:
		if w.Bound(t) {
			break
		}
		// Its replacement costs money while it waits: it goes before those that have none.
		u.State, u.InTurn, u.Down = v1alpha1.UnitOutdated, true, true
		if !t.Claimable {
			u.Reason, u.Message = w.waiting(t)
		}
	case v1alpha1.MachineSoaking:
		u.State, u.Since = v1alpha1.UnitSoaking, t.PhaseSince.Time
	case v1alpha1.MachineDraining, v1alpha1.MachineLeaving, v1alpha1.MachineDeleting, v1alpha1.MachineDiscarding:
	}
	if f := t.Failed; f != nil {
		u.State, u.InTurn, u.Reason, u.Message, u.Since, u.Skipped = v1alpha1.UnitFailed, false, f.Reason, f.Message, f.Time.Time, f.Skipped
		if t.Phase == v1alpha1.MachineSoaking || w.asksAgain(t) {
			return // There is nothing to be tried again.
		}
		u.RetryAt = RetryAt(&t.MachineTurn, w.Retries, w.Now)
	}
}

// RetryAt is when a failed turn is tried again; zero is never. One whose time is past is tried again once its replacement is deleted.
func RetryAt(t *v1alpha1.MachineTurn, retries *v1alpha1.Retries, now time.Time) time.Time {
	at := rollout.RetryAt(retries, t.Failures+1, t.Failed.Time.Time)
	if !at.IsZero() && !now.Before(at) {
		return now.Add(time.Minute)
	}
	return at
}

// waiting is why a turn's node can't be claimed yet.
func (w *World) waiting(t *Turn) (v1alpha1.Reason, string) {
	s := w.set(t.ScaleSet)
	o, m := s.Operation(t.Operation), s.Machine(t.Machine)
	asks := t.Step == StepAdd || o != nil && !o.Sent
	switch {
	case asks && s.Reason != "":
		return s.Reason, s.Message
	case t.Step == StepAdd && s.Unfit != "":
		return v1alpha1.ReasonScaleSetUnfit, "scale set " + s.Name + ": " + s.Unfit
	case asks && s.NoRoom != "":
		return s.NoRoom, s.NoRoomMessage
	case t.Phase == v1alpha1.MachineClaiming && m != nil && w.duplicateNodes(m) != "":
		return v1alpha1.ReasonMachineUnknown, t.Message
	case t.Phase == v1alpha1.MachineClaiming && m != nil && m.Protected:
		return v1alpha1.ReasonMachineProtected, t.Message
	case t.Phase == v1alpha1.MachineClaiming && w.controlPlaneBlocks(t) != "":
		return v1alpha1.ReasonEtcdUnhealthy, t.Message
	}
	return v1alpha1.ReasonReplacementPending, or(t.Message, "it is being looked at")
}
