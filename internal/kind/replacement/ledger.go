// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"maps"
	"slices"
	"time"

	"moult.dev/moult/api/v1alpha1"
)

// Ledger keeps account of what has become of a set's capacity: what the rollout's own operations explain of it, and what not. What a process that is no
// more has known of that is in the status.
type Ledger struct {
	// Missing is since when machines of turns have not been listed.
	Missing map[string]time.Time
	// first is when they were not listed for the first time, whatever was under way.
	first map[string]time.Time
	// Last is when machines were listed that are now, or that turns have.
	Last map[string]time.Time
	// Lost is how much of the capacity has gone by itself, since when.
	Lost   int
	lostAt time.Time
	// known is true once base is the capacity at a time at which no operation was under way; since then operations have changed it by delta.
	known       bool
	base, delta int
	// deleted are machines that operations have deleted which have ended since.
	deleted map[string]bool
	// Ends is by how much operations that have ended have raised the capacity, by their tokens, while the status has them.
	Ends map[string]int
}

// Resume is a ledger of which the status says how much capacity is accounted for.
func Resume(accounted int32) Ledger { return Ledger{known: true, base: int(accounted)} }

// Accounted is the capacity that there is, or that turns have still to take account of that it is lost. What operations have done that are still in the
// status is not in it: whoever reads it finds that out again. Nil while it is not known.
func (l *Ledger) Accounted(operations []v1alpha1.CloudOperation, spent int) *int32 {
	if !l.known {
		return nil
	}
	n := l.base + l.delta + l.Lost - spent
	for i := range operations {
		n -= l.Ends[operations[i].Token]
	}
	n = max(0, n)
	accounted := int32(n)
	return &accounted
}

// believed is for how long at most it is waited for a time at which nothing is under way, to find out what has become of a machine.
const believed = 5 * time.Minute

// forgotten is after how long a capacity that has gone, while no machine of a turn has, is nobody's any more.
const forgotten = time.Minute

// Ended notes that an operation has raised the capacity by so many.
func (l *Ledger) Ended(token string, by int) {
	l.delta += by
	if l.Ends == nil {
		l.Ends = map[string]int{}
	}
	l.Ends[token] = by
}

// Deleted notes that an operation has deleted machines, and lowered the capacity by as many.
func (l *Ledger) Deleted(token string, machines []string) {
	l.Ended(token, -len(machines))
	if l.deleted == nil {
		l.deleted = map[string]bool{}
	}
	for _, id := range machines {
		l.deleted[id] = true
	}
}

// Made is by how many an addition has raised the capacity: what it says that it has added, and what turns were given before it was over and have
// deleted since.
func Made(o *v1alpha1.CloudOperation, added []string) int {
	n := len(added)
	for _, id := range o.Machines {
		if n < int(o.Count) && !slices.Contains(added, id) {
			n++
		}
	}
	return n
}

// Looked takes in what a look has shown: the capacity, the machines, and whether operations were under way that change it. ours are machines of turns.
func (l *Ledger) Looked(capacity int, machines []Machine, ours []string, underWay bool, now time.Time) {
	listed := map[string]bool{}
	there, going := 0, 0 // Of those that turns have others may be deleting some: as long as these are listed, nothing has become of them.
	for i := range machines {
		listed[machines[i].ID] = true
		switch {
		case machines[i].State != Deleting:
			there++
		case slices.Contains(ours, machines[i].ID) && !l.deleted[machines[i].ID]:
			going++
		}
	}
	l.misses(listed, ours, underWay, now)
	if underWay {
		return
	}
	switch {
	case l.known:
		l.Lost += l.base + l.delta - capacity
	case capacity <= there:
		l.Lost = going // As far as can be told where the status does not say.
		for id := range l.Missing {
			if !l.deleted[id] {
				l.Lost++
			}
		}
	}
	l.Lost = max(0, l.Lost)
	switch {
	case l.Lost == 0:
		l.lostAt = time.Time{}
	case l.lostAt.IsZero():
		l.lostAt = now
	case len(l.Missing)+going == 0 && now.Sub(l.lostAt) > forgotten:
		l.Lost, l.lostAt = 0, time.Time{}
	}
	l.known, l.base, l.delta, l.deleted = true, capacity, 0, nil
}

// misses notes which machines of turns are not listed.
func (l *Ledger) misses(listed map[string]bool, ours []string, underWay bool, now time.Time) {
	before, first := l.Missing, l.first
	l.Missing, l.first = map[string]time.Time{}, map[string]time.Time{}
	for _, id := range ours {
		if id == "" || listed[id] {
			continue
		}
		since, ok := before[id]
		l.first[id] = first[id]
		if !ok {
			l.first[id] = now
		}
		if !ok || underWay && now.Sub(l.first[id]) < believed {
			since = now // What has become of the capacity can't be told yet.
		}
		l.Missing[id] = since
	}
	maps.DeleteFunc(l.Last, func(id string, _ time.Time) bool { return !listed[id] && !slices.Contains(ours, id) })
	if l.Last == nil {
		l.Last = map[string]time.Time{}
	}
	for id := range listed {
		l.Last[id] = now
	}
}
