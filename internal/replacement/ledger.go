// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"slices"
	"time"

	"moult.dev/moult/api/v1alpha1"
)

// Ledger keeps account of what has become of a set's capacity: what the rollout's own operations explain of it, and what not. To forget it costs that
// a machine which goes by itself just then may be judged by less.
type Ledger struct {
	// Missing is since when machines of turns have not been listed.
	Missing map[string]time.Time
	// first is when they were not listed for the first time, whatever was under way.
	first map[string]time.Time
	// Lost is how much of the capacity has gone by itself, since when.
	Lost   int
	lostAt time.Time
	// known is true once base is the capacity at a time at which no operation was under way; since then operations have changed it by delta.
	known       bool
	base, delta int
}

// believed is for how long at most it is waited for a time at which nothing is under way, to find out what has become of a machine.
const believed = 5 * time.Minute

// forgotten is after how long a capacity that has gone, while no machine of a turn has, is nobody's any more.
const forgotten = time.Minute

// Ended notes that an operation has changed the capacity by so many.
func (l *Ledger) Ended(by int) { l.delta += by }

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
	there := 0
	for i := range machines {
		listed[machines[i].ID] = true
		if machines[i].State != Deleting {
			there++
		}
	}
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
	if underWay {
		return
	}
	switch {
	case l.known:
		l.Lost += l.base + l.delta - capacity
	case capacity <= there:
		l.Lost = len(l.Missing) // As far as can be told after a restart.
	}
	l.Lost = max(0, l.Lost)
	switch {
	case l.Lost == 0:
		l.lostAt = time.Time{}
	case l.lostAt.IsZero():
		l.lostAt = now
	case len(l.Missing) == 0 && now.Sub(l.lostAt) > forgotten:
		l.Lost, l.lostAt = 0, time.Time{}
	}
	l.known, l.base, l.delta = true, capacity, 0
}
