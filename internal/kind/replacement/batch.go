// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cloud"
	"moult.dev/moult/internal/kind/nodeturn"
	"moult.dev/moult/internal/rollout"
)

// Batch is a cloud operation for these turns, before it is recorded. Machines are added in Zone; empty if the cloud chooses.
type Batch struct {
	v1alpha1.CloudOperation
	Set   *Set
	Zone  string
	Turns []*Turn
}

// The most additions and the most deletions under way in a set at once, and the most machines that one pass adds to a set, or deletes from it.
const (
	maxUnderWay = 8
	maxBatch    = 100
)

// Batches combines the cloud steps of turns into operations: in each set a few Adds and Deletes at a time. Adds come first: Azure accepts them only
// while the set is as it was described.
func (w *World) Batches(turns []*Turn) []Batch {
	var all []Batch
	for _, name := range slices.Sorted(maps.Keys(w.Sets)) {
		if s := w.Sets[name]; s.Known && s.Reason == "" {
			all = slices.Concat(all, s.additions(turns), s.deletions(turns))
		}
	}
	return all
}

// underWay counts the operations of a kind.
func (s *Set) underWay(kind v1alpha1.CloudOperationKind) int {
	return rollout.Count(s.Operations, func(o *v1alpha1.CloudOperation) bool { return o.Kind == kind })
}

// mayAdd reports whether machines can be added now. No machine of another addition may have failed. If the cloud chooses zones, all machines of other
// additions must be known: otherwise it is not known which are new.
func (s *Set) mayAdd() bool {
	for _, o := range s.Operations {
		added := s.Added[o.Token]
		isUnlisted := func(id string) bool { return s.Machine(id) == nil }
		hasFailed := func(id string) bool {
			m := s.Machine(id)
			return m != nil && (m.State == cloud.Failed || m.State == cloud.Deleting)
		}
		unknown := len(s.Zones) == 0 && (len(added) < int(o.Count) || slices.ContainsFunc(added, isUnlisted))
		if o.Kind == v1alpha1.CloudOperationAdd && (unknown || slices.ContainsFunc(added, hasFailed)) {
			return false
		}
	}
	n := s.underWay(v1alpha1.CloudOperationAdd)
	return s.NoRoom == "" && s.Unfit == "" && !s.isBusy() && n < maxUnderWay && (n == 0 || !s.Careful)
}

// additions are the machines to add.
func (s *Set) additions(turns []*Turn) []Batch {
	if !s.mayAdd() {
		return nil
	}
	room := maxBatch
	if s.Careful {
		room = 1
	}
	if s.Max > 0 {
		room = min(room, max(1, s.Max-s.Capacity)) // If the limit read here is old, the cloud decides.
	}
	ordering := s.turnsToOrder(turns, StepAdd)
	// Turns that must have a replacement come first: they may have no machine.
	rank := func(t *Turn) int {
		if t.mustRestore() || t.Bound {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(ordering, func(a, b *Turn) int { return rank(a) - rank(b) })
	if s.Careful && len(ordering) > 0 { // The cloud may lack machines in one zone only.
		equal := rollout.Count(ordering, func(t **Turn) bool { return rank(*t) == rank(ordering[0]) })
		ordering = ordering[s.Refused%equal:]
	}
	var all []Batch
	for _, t := range ordering[:min(room, len(ordering))] {
		zone := ""
		if slices.Contains(s.Zones, t.Zone) {
			zone = t.Zone // The cloud lets the caller choose the zone.
		}
		i := slices.IndexFunc(all, func(b Batch) bool { return b.Zone == zone })
		if i < 0 {
			i = len(all)
			all = append(all, Batch{CloudOperation: v1alpha1.CloudOperation{Kind: v1alpha1.CloudOperationAdd}, Set: s, Zone: zone})
		}
		all[i].Count++
		all[i].Turns = append(all[i].Turns, t)
	}
	return all
}

// deletions are the machines to delete.
func (s *Set) deletions(turns []*Turn) []Batch {
	ordering := s.turnsToOrder(turns, StepDelete)
	if s.isAtMinimum() {
		for _, t := range ordering {
			t.Message = s.tooFew()
		}
		return nil
	}
	if len(ordering) == 0 || s.underWay(v1alpha1.CloudOperationDelete) >= maxUnderWay {
		return nil
	}
	most := maxBatch
	if s.Min > 0 {
		most = min(most, s.Capacity-s.Min)
	}
	b := Batch{CloudOperation: v1alpha1.CloudOperation{Kind: v1alpha1.CloudOperationDelete}, Set: s, Turns: ordering[:min(most, len(ordering))]}
	for _, t := range b.Turns {
		b.Machines = append(b.Machines, *t.machineToDelete())
	}
	return []Batch{b}
}

// turnsToOrder are the turns of this set with this step that wait for no operation.
func (s *Set) turnsToOrder(turns []*Turn, step Step) []*Turn {
	return slices.DeleteFunc(slices.Clone(turns), func(t *Turn) bool {
		return t.ScaleSet != s.Name || t.Over || t.Operation != "" || t.Step != step
	})
}

// RecordOrder adds the operation of a batch to its set. The turns of the batch wait for it.
func (b *Batch) RecordOrder() {
	b.Set.Operations = append(b.Set.Operations, b.CloudOperation)
	for _, t := range b.Turns {
		t.Operation = b.Token
		t.Ordered = t.Ordered || b.Kind == v1alpha1.CloudOperationDelete && t.Phase == v1alpha1.MachineDeleting
	}
}

// RemoveRefused removes an operation that was refused or has had no effect: the turns no longer wait for it. An empty token means that the operation
// was never recorded.
func (w *World) RemoveRefused(set *Set, token string, turns []*Turn, noRoom bool, why string) {
	set.Operations = slices.DeleteFunc(slices.Clone(set.Operations), func(o v1alpha1.CloudOperation) bool { return o.Token == token })
	for _, t := range set.turnsWaitingFor(turns, token) {
		t.Operation = ""
		if t.Phase != v1alpha1.MachineAdding {
			continue
		}
		if t.Message = nodeturn.Short(why); noRoom {
			w.notAdded(t, true, why)
		}
	}
}

func (w *World) adding(t *Turn) {
	s, why := w.SetOf(t), w.whyUnwanted(t)
	switch {
	case t.Operation != "":
		t.Message = "a machine is being added to scale set " + t.ScaleSet
		if o := s.Operation(t.Operation); o != nil && !o.Sent {
			t.Message = cmp.Or(s.Message, t.Message)
		}
		w.failIfNotAdded(t, s)
	case t.Failed != nil && w.Ending && !w.Bound(t) && s.Declined != "":
		t.Over = true // It would wait for ever.
	case why != "":
		w.discard(t, why)
	case s.isGone(t.Machine):
		w.discard(t, "the machine is gone")
	case s.isMissing(t.Machine):
	case w.exceedsSurge(t, s):
		w.discard(t, "surge does not allow for it any more") // A later turn begins with the new surge.
	default:
		t.Step = StepAdd
		t.Message = cmp.Or(s.Message, s.Unfit, s.NoRoomMessage, t.Message, "a machine will be added to scale set "+t.ScaleSet)
		w.failIfNotAdded(t, s)
	}
}

// exceedsSurge reports whether surge was lowered too far for a turn whose machine is not ordered yet.
func (w *World) exceedsSurge(t *Turn, s *Set) bool {
	if !s.Known || !t.isSurplus() || w.needsReplacement(t) {
		return false
	}
	// A replacement that no turn needs is deleted in any case.
	u := s.usage(slices.DeleteFunc(slices.Clone(w.turns), func(t *Turn) bool { return t.Machine == "" && t.Phase == v1alpha1.MachineDiscarding }))
	before := usage{used: u.used - u.adding} // Only extra machines that exist count: a percentage then gives no less than at the start.
	return u.used > w.surge(s, before)
}

// failIfNotAdded fails a turn after Timeout if the cloud declines to add its machine, or is still adding it. If room, quota or rights are missing,
// the turn waits.
func (w *World) failIfNotAdded(t *Turn, s *Set) {
	why, since := s.Declined, t.PhaseSince
	if o := s.Operation(t.Operation); o != nil && o.Sent {
		why, since = "the cloud is still adding it", o.Since
	}
	if why == "" || t.waitUntil(since.Add(w.Timeout), w.Now) {
		return
	}
	w.failReplacement(t, fmt.Sprintf("scale set %s has no machine in place of %s within replacementReady.timeout, %s: %s", s.Name, t.oldName(), w.Timeout, why))
}

// additionsBlocked says why the cloud adds no machines in place of deleted ones, or "". Meanwhile no further machine may be deleted first.
func (w *World) additionsBlocked(s *Set, turns []*Turn) string {
	if s.Unfit != "" {
		return s.Unfit
	}
	for _, t := range turns {
		switch {
		case t.ScaleSet != s.Name || t.Over || t.Phase != v1alpha1.MachineAdding:
		case s.Declined != "":
			return "no machine is added to scale set " + s.Name + ": " + s.Declined
		case t.Failed != nil:
			return t.Failed.Message
		}
	}
	return ""
}
