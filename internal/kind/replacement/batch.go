// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"cmp"
	"slices"

	"moult.dev/moult/api/v1alpha1"
)

// Batch is one operation to be asked of a cloud, for all these turns.
type Batch struct {
	Set      *Set
	Kind     v1alpha1.CloudOperationKind
	Zone     string
	Machines []string
	Turns    []*Turn
}

// The most that is under way in a set at once, and that one operation does.
const (
	maxDeletes = 8
	maxBatch   = 100
)

// Batches puts the steps that clouds are asked for together: in each set one Add for each zone at a time, and a few Deletes.
func (w *World) Batches(turns []*Turn) []Batch {
	var all []Batch
	for _, s := range w.Sets {
		if !s.Known || s.Reason != "" || s.Unfit != "" {
			continue
		}
		all = append(append(all, s.additions(turns)...), s.deletions(turns)...)
	}
	slices.SortFunc(all, func(a, b Batch) int {
		return cmp.Or(cmp.Compare(a.Set.Name, b.Set.Name), cmp.Compare(b.Kind, a.Kind), cmp.Compare(a.Zone, b.Zone))
	})
	return all
}

// zone that a machine is asked for in the place of a turn's; empty where that can't be chosen.
func (s *Set) zone(t *Turn) string {
	if slices.Contains(s.Zones, t.Zone) {
		return t.Zone
	}
	return ""
}

// additions are what is to be added, in zones where nothing is being added already.
func (s *Set) additions(turns []*Turn) []Batch {
	if s.NoRoom != "" || s.Busy != "" {
		return nil
	}
	busy, zones, waited := map[string]bool{}, map[string]*Batch{}, map[string]bool{}
	for _, t := range turns {
		if o := s.Operation(t.Operation); t.ScaleSet == s.Name && o != nil && o.Kind == v1alpha1.CloudOperationAdd {
			busy[s.zone(t)], waited[o.Token] = true, true
		}
	}
	for i := range s.Operations {
		if o := &s.Operations[i]; o.Kind == v1alpha1.CloudOperationAdd && !waited[o.Token] {
			return nil // Nobody waits for it any more: what comes of it is not known yet.
		}
	}
	// Those first that can't do without: nothing may keep machines that are gone already from being made up for.
	turns = slices.Clone(turns)
	slices.SortStableFunc(turns, func(a, b *Turn) int { return cmp.Compare(order(a), order(b)) })
	room := s.roomToAdd()
	for _, t := range turns {
		z := s.zone(t)
		if !s.mayAsk(t) || t.Step != StepAdd || busy[z] {
			continue
		}
		if room--; room < 0 {
			break
		}
		if zones[z] == nil {
			zones[z] = &Batch{Set: s, Kind: v1alpha1.CloudOperationAdd, Zone: z}
		}
		if b := zones[z]; len(b.Turns) < maxBatch {
			b.Turns = append(b.Turns, t)
		}
	}
	var all []Batch
	for _, b := range zones {
		all = append(all, *b)
	}
	return all
}

func order(t *Turn) int {
	if t.mustRestore() || t.Bound {
		return 0
	}
	return 1
}

// roomToAdd is how many machines can be asked for now.
func (s *Set) roomToAdd() int {
	room := maxBatch
	if s.Careful {
		room = 1
	}
	if s.Max > 0 {
		room = min(room, max(1, s.Max-s.Capacity)) // What is too much, the cloud refuses; it may know better.
	}
	return room
}

// deletions is what is to be deleted.
func (s *Set) deletions(turns []*Turn) []Batch {
	under := 0
	for i := range s.Operations {
		if s.Operations[i].Kind == v1alpha1.CloudOperationDelete {
			under++
		}
	}
	b := Batch{Set: s, Kind: v1alpha1.CloudOperationDelete}
	most := maxBatch
	if s.Min > 0 {
		most = min(most, max(1, s.Capacity-s.Min)) // What is too much, the cloud refuses; it may know better.
	}
	for _, t := range turns {
		if !s.mayAsk(t) || under >= maxDeletes || len(b.Turns) >= most {
			continue
		}
		switch t.Step {
		case StepDelete:
			b.Turns, b.Machines = append(b.Turns, t), append(b.Machines, t.Machine)
		case StepDiscard:
			b.Turns, b.Machines = append(b.Turns, t), append(b.Machines, t.Replacement)
		default:
		}
	}
	if len(b.Turns) == 0 {
		return nil
	}
	return []Batch{b}
}

// mayAsk reports whether a turn may ask the set for something.
func (s *Set) mayAsk(t *Turn) bool { return t.ScaleSet == s.Name && !t.Over && t.Operation == "" }

// Ordered is a batch that has become an operation: it is written down, and the turns wait for it.
func (b *Batch) Ordered(o v1alpha1.CloudOperation) {
	b.Set.Operations = append(b.Set.Operations, o)
	for _, t := range b.Turns {
		t.Operation = o.Token
		t.Ordered = t.Ordered || o.Kind == v1alpha1.CloudOperationDelete && t.Phase == v1alpha1.MachineDeleting
	}
}

// Refused is a batch that the cloud has no room for, or an operation that has had no effect: the turns do not wait for it.
func (w *World) Refused(set *Set, token string, turns []*Turn, noRoom bool, why string) {
	set.Operations = slices.DeleteFunc(slices.Clone(set.Operations), func(o v1alpha1.CloudOperation) bool { return o.Token == token })
	for _, t := range turns {
		if t.ScaleSet != set.Name || t.Operation != token {
			continue
		}
		t.Operation, t.Ordered = "", false
		if t.Phase != v1alpha1.MachineAdding {
			continue
		}
		if noRoom && w.OnFull == v1alpha1.OnFullDeleteFirst && !t.DeletesFirst && !w.Bound(t) {
			t.DeletesFirst = true
			w.enter(t, v1alpha1.MachineClaiming)
			continue
		}
		t.Message = short(why)
	}
}
