// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"cmp"
	"slices"
	"time"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cloud"
	"moult.dev/moult/internal/kind/nodeturn"
	"moult.dev/moult/internal/rollout"
)

// A machine of a turn may disappear although the turn did not order that. Then either the cloud makes another one, or the scale set was made smaller.
// The cloud makes another one if a newer machine has come, or if the set has fewer machines than its capacity. Earlier capacities are not tracked:
// each turn adds one machine and deletes one, and machines of a set are alike. So a turn may delete any machine that no other turn has.

// successor is the oldest machine that was made since the turn's phase began and has no turn, or nil. Later machines replace later losses.
func (w *World) successor(t *Turn, s *Set) *cloud.Machine {
	var found *cloud.Machine
	for i := range s.Machines {
		m := &s.Machines[i]
		isCandidate := m.State != cloud.Deleting && !IsTaken(w.turns, s.Name, m.ID) && w.cameSince(t, s, m)
		if isCandidate && (found == nil || byAge(m, found) < 0) {
			found = m
		}
	}
	return found
}

// cameSince reports whether a machine was made since the turn's phase began, when the lost machine still existed, and had no Node then. If its age is
// not known, it must be up to date.
func (w *World) cameSince(t *Turn, s *Set, m *cloud.Machine) bool {
	n := w.NodeOf(m)
	made := createdAt(m, n)
	switch {
	case n != nil && !n.CreationTimestamp.IsZero() && n.CreationTimestamp.Time.Before(t.PhaseSince.Time):
		return false
	case made.IsZero():
		return !w.Outdated(s, m, n)
	}
	return made.After(t.PhaseSince.Add(-maxClockSkew))
}

// createdAt is when a machine was made, by the cloud, else by its Node. The Node may be nil.
func createdAt(m *cloud.Machine, n *Node) time.Time {
	if m.Created.IsZero() && n != nil {
		return n.CreationTimestamp.Time
	}
	return m.Created
}

// byAge orders machines, the oldest first.
func byAge(a, b *cloud.Machine) int {
	return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
}

// lacksMachines reports whether the cloud has still to make machines: the set has fewer than its capacity.
func (s *Set) lacksMachines() bool {
	return s.Known && s.Capacity > rollout.Count(s.Machines, func(m *cloud.Machine) bool { return m.State != cloud.Deleting && m.Aside == "" })
}

// isAdding reports whether an addition is under way: it is not known which turn gets a new machine.
func (s *Set) isAdding() bool { return s.underWay(v1alpha1.CloudOperationAdd) > 0 }

// machineLost handles a turn whose machine is gone without a confirmed deletion. If the cloud makes another one, the turn ends without a change. If
// the set was made smaller, the replacement takes its place. The cloud may have done a deletion that it reported as failed.
func (w *World) machineLost(t *Turn) {
	s := w.SetOf(t)
	switch {
	case s.isAdding():
		t.Message = "machine " + t.Machine + " is gone, and machines are being added to scale set " + s.Name
	case s.lacksMachines() || w.successor(t, s) != nil:
		w.discard(t, "machine "+t.Machine+" has gone by itself, and the cloud makes another in its place")
	case t.DeletesFirst && !t.Ordered:
		w.discard(t, "machine "+t.Machine+" has gone by itself")
	case t.DeletesFirst || t.Phase == v1alpha1.MachineJoining:
		t.DeletesFirst, t.Machine, t.moved = true, "", true
	default:
		t.DeletesFirst, t.Machine = true, ""
		w.enter(t, v1alpha1.MachineLeaving)
	}
}

// replacementLost handles a turn whose replacement is not listed. Once it is certainly gone the turn fails, or waits for another one if it must have
// one. A turn that discards its replacement discards the one that the cloud makes in its place.
func (w *World) replacementLost(t *Turn) {
	s, needed := w.SetOf(t), w.needsReplacement(t)
	switch {
	case t.Replacement != "" && !s.isGone(t.Replacement):
		t.Message = "machine " + t.Replacement + ", the replacement, is not listed by the cloud"
	case !needed && t.Phase != v1alpha1.MachineDiscarding:
		w.fail(t, v1alpha1.ReasonReplacementFailed, "the replacement of "+t.oldName()+" in scale set "+s.Name+", machine "+t.Replacement+", is gone")
	case w.replacementRemains(t, s):
	case needed:
		t.Bound = w.Bound(t) // The node may have left the control plane in part, or may have to wait for another member.
		t.forgetReplacement()
		// PhaseSince stays: a machine made since then may be the replacement. Timeout counts from now.
		t.Phase, t.UnreadySince, t.Message, t.moved = v1alpha1.MachineJoining, nodeturn.Stamp(w.Now), "", true
	case s.isAdding() || s.lacksMachines():
		t.Message = "machine " + t.Replacement + " is gone, and the one that the cloud makes in its place will be deleted"
	default:
		t.forgetReplacement()
		t.moved = true
		if m := w.successor(t, s); m != nil {
			t.Replacement = m.ID
		}
	}
}

func (t *Turn) forgetReplacement() {
	t.Replacement, t.ReplacementNode, t.ReplacementProviderID = "", "", ""
}

// findReplacement handles a turn that needs a replacement and has none. The turn takes the machine that the cloud makes in place of the lost one, or
// orders one.
func (w *World) findReplacement(t *Turn, s *Set) {
	m := w.successor(t, s)
	switch {
	case !s.Known:
	case !w.needsReplacement(t):
		w.replacementLost(t)
	case s.isAdding() || s.lacksMachines() && m == nil:
		w.waitForReplacement(t, cmp.Or(t.UnreadySince, &t.PhaseSince).Time, "scale set "+s.Name+" has no new machine that can be the replacement")
	case m != nil:
		t.Replacement, t.Failed = m.ID, nil
		w.enter(t, v1alpha1.MachineJoining)
	default:
		w.enter(t, v1alpha1.MachineAdding)
	}
}

// StillMissing is since when machines of turns (ours) are missing from the list of all machines; before is the previous result.
func StillMissing(before map[string]time.Time, listed []cloud.Machine, ours []string, now time.Time) map[string]time.Time {
	after := map[string]time.Time{}
	for _, id := range ours {
		if id == "" || slices.ContainsFunc(listed, func(m cloud.Machine) bool { return m.ID == id }) {
			continue
		}
		after[id] = now
		if since, known := before[id]; known {
			after[id] = since
		}
	}
	return after
}

// hasLostMachine reports whether a machine of a turn is gone without an order, and its successor is not known yet. Meanwhile no other turn begins in
// the set: it might begin for that successor.
func (s *Set) hasLostMachine(turns []*Turn) bool {
	return s.Known && slices.ContainsFunc(turns, func(t *Turn) bool {
		lost := t.Phase == v1alpha1.MachineJoining && t.Replacement == "" || s.isMissing(t.Replacement) || s.isMissing(t.Machine)
		return lost && t.ScaleSet == s.Name && !t.Over && t.Operation == ""
	})
}
