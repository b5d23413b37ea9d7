// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"slices"
	"time"

	"moult.dev/moult/api/v1alpha1"
)

// rules are what a decision is made by. Each has a name, so that a test can leave it out and see that this is noticed.
type rules struct {
	checks  []check
	halts   []halt
	endings []ending
	books   []book
}

// check is one rule: it says why a unit may not start, or "".
type check struct {
	name string
	ask  func(p *pass, c *candidate) (v1alpha1.Reason, string)
}

// book notes what a unit costs that is started now.
type book struct {
	name string
	note func(p *pass, c *candidate)
}

// standard is the rules. Of the checks, which are in order, the first that says no gives the reason.
var standard = rules{
	checks: []check{
		{"optedOut", optedOut},
		{"fit", fit},
		{"understood", understood},
		{"paused", paused},
		{"failures", notHalted},
		{"window", insideWindow},
		{"wave", inWave},
		{"claim", unclaimed},
		{"concurrency", slotFree},
		{"budgetUnderstood", budgetUnderstood},
		{"budgetPaused", budgetPaused},
		{"budgetWindow", insideBudgetWindow},
		{"gates", gatesOpen},
		{"domains", domainFree},
		{"budget", budgetLeft},
	},
	halts: []halt{
		{"canary", canaryFailed},
		{"maxFailures", tooManyFailed},
	},
	endings: []ending{
		{"there", waveThere},
		{"updated", waveUpdated},
		{"offered", waveOffered},
		{"borne", waveBorne},
		{"complete", waveComplete},
		{"healthy", waveHealthy},
		{"soaked", waveSoaked},
		{"approved", waveApproved},
	},
	books: []book{
		{"slot", takeSlot},
		{"budget", spend},
	},
}

// candidate is a unit that asks to be started.
type candidate struct {
	*Unit
	node *Node
	// wave is the index of the unit's wave.
	wave int
	// accounts are those of the budgets that select the node, once a check has asked for them.
	accounts []*account
	looked   bool
}

// pass is what the checks of one Decide share.
type pass struct {
	*rules
	strategy *Strategy
	fleet    *Fleet
	now      time.Time
	next     time.Time

	// The window's answer is the same for every unit, and so is that of the failure limit.
	windowReason  v1alpha1.Reason
	windowMessage string
	halted        string

	wave  waves
	slots slots
	// accounts are made when the first unit gets so far; asking is how many units may.
	accounts []*account
	matched  []*account
	opened   bool
	asking   int
}

// wake notes an instant at which the answer can change.
func (p *pass) wake(at time.Time) {
	if !at.IsZero() && (p.next.IsZero() || at.Before(p.next)) {
		p.next = at
	}
}

// nowhere stands for a node of which nothing is known.
var nowhere = Node{Evictions: -1}

func (p *pass) node(name string) *Node {
	if n := p.fleet.Nodes[name]; n != nil {
		return n
	}
	return &nowhere
}

// Decide says which of the units may start now, and of every other one that needs a turn, why not. It never starts a
// unit that does not ask for it, and never more than the strategy and the budgets allow together with what is under way.
func Decide(s Strategy, units []Unit, fleet Fleet, now time.Time) Decision {
	return decide(&standard, s, units, fleet, now)
}

func decide(by *rules, s Strategy, units []Unit, fleet Fleet, now time.Time) Decision {
	p, order := begin(by, &s, units, &fleet, now)
	var d Decision
	for i := range units {
		if u := &units[i]; u.State == v1alpha1.UnitFailed && !u.asks(now) {
			d.Waiting = append(d.Waiting, p.failed(u))
		}
	}
	d.Waiting = slices.Grow(d.Waiting, len(order))
	for _, c := range order {
		if reason, message := p.admit(c); reason != "" {
			d.Waiting = append(d.Waiting, Wait{Node: c.Node, Reason: reason, Message: message, Holds: c.HoldsSlot()})
			continue
		}
		d.Start = append(d.Start, c.Node)
	}
	if p.halted != "" {
		d.Halted = &Wait{Reason: v1alpha1.ReasonHalted, Message: p.halted}
	}
	d.Wave = p.wave.status
	d.Next = p.next
	return d
}

// begin makes a pass, and the units that ask to be started in their order.
func begin(by *rules, s *Strategy, units []Unit, fleet *Fleet, now time.Time) (*pass, []*candidate) {
	p := &pass{rules: by, strategy: s, fleet: fleet, now: now, slots: countSlots(s, units, now)}
	p.lookAtWindow()
	for i := range units {
		if units[i].asks(now) {
			p.asking++
		}
	}
	candidates := make([]candidate, 0, p.asking)
	for i := range units {
		if u := &units[i]; u.asks(now) {
			candidates = append(candidates, candidate{Unit: u, node: p.node(u.Node)})
		}
	}
	order := p.sort(candidates)
	p.divide(units, order)
	p.lookAtFailures(units)
	return p, order
}

// admit says why a unit may not start, or "", and then books it.
func (p *pass) admit(c *candidate) (v1alpha1.Reason, string) {
	if reason, message := p.ask(c); reason != "" {
		return reason, message
	}
	for i := range p.books {
		p.books[i].note(p, c)
	}
	return "", ""
}

func (p *pass) ask(c *candidate) (v1alpha1.Reason, string) {
	for i := range p.checks {
		if reason, message := p.checks[i].ask(p, c); reason != "" {
			return reason, message
		}
	}
	return "", ""
}
