// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
	"slices"
	"time"

	"moult.dev/moult/api/v1alpha1"
)

// check is one rule: it says why a unit may not start, or "".
type check struct {
	name string
	ask  func(p *pass, u *Unit) (v1alpha1.Reason, string)
}

// checks is the chain, in order. The first that says no gives the reason.
var checks = []check{
	{"optedOut", optedOut},
	{"fit", fit},
	{"window", insideWindow},
	{"claim", unclaimed},
	{"concurrency", slotFree},
}

// pass is what the checks of one Decide share.
type pass struct {
	strategy *Strategy
	fleet    Fleet
	now      time.Time
	next     time.Time

	// The window's answer is the same for every unit.
	windowReason  v1alpha1.Reason
	windowMessage string

	slots slots
}

// wake notes an instant at which the answer can change.
func (p *pass) wake(at time.Time) {
	if p.next.IsZero() || at.Before(p.next) {
		p.next = at
	}
}

// Decide says which of the units may start now, and of every other one that needs a turn, why not. It never starts a
// unit that is not Outdated, and never more than the strategy allows together with those that hold a slot already.
func Decide(s Strategy, units []Unit, fleet Fleet, now time.Time) Decision {
	p := &pass{strategy: &s, fleet: fleet, now: now, slots: countSlots(&s, units)}
	p.lookAtWindow()

	var d Decision
	candidates := make([]*Unit, 0, len(units))
	for i := range units {
		switch u := &units[i]; u.State {
		case v1alpha1.UnitOutdated:
			candidates = append(candidates, u)
		case v1alpha1.UnitFailed:
			d.Waiting = append(d.Waiting, Wait{Node: u.Node, Reason: u.Reason, Message: u.Message, Holds: true})
		case v1alpha1.UnitUpdating, v1alpha1.UnitSoaking, v1alpha1.UnitUpdated:
		}
	}
	slices.SortFunc(candidates, func(a, b *Unit) int {
		return cmp.Or(cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.Node, b.Node))
	})
	d.Waiting = slices.Grow(d.Waiting, len(candidates))
	for _, u := range candidates {
		if reason, message := p.ask(u); reason != "" {
			d.Waiting = append(d.Waiting, Wait{Node: u.Node, Reason: reason, Message: message, Holds: u.HoldsSlot()})
			continue
		}
		p.slots.busy++
		if !u.HoldsSlot() {
			p.slots.take(u.Node)
		}
		d.Start = append(d.Start, u.Node)
	}
	d.Next = p.next
	return d
}

func (p *pass) ask(u *Unit) (v1alpha1.Reason, string) {
	for i := range checks {
		if reason, message := checks[i].ask(p, u); reason != "" {
			return reason, message
		}
	}
	return "", ""
}
