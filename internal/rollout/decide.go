// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"slices"
	"time"

	"moult.dev/moult/api/v1alpha1"
)

// rules are all rules of a decision.
type rules struct {
	checks  []rule[check]
	halts   []rule[halt]
	endings []rule[ending]
	books   []rule[book]
}

// rule has a name, so that the mutation test can disable it and expect the simulation to fail.
type rule[F any] struct {
	name  string
	apply F
}

// check returns why a unit may not start, or "".
type check func(p *pass, c *candidate) (v1alpha1.Reason, string)

// book records the cost of a unit that is started now.
type book func(p *pass, c *candidate)

// standard holds the product's rules. The first check in order that refuses a unit determines its reason.
var standard = rules{
	checks: []rule[check]{
		{"optedOut", optedOut},
		{"fit", updatable},
		{"understood", strategyValid},
		{"paused", paused},
		{"failures", notHalted},
		{"window", insideWindow},
		{"wave", inWave},
		{"claim", unclaimed},
		{"concurrency", slotFree},
		{"budgetUnderstood", budgetOpen(v1alpha1.ReasonBudgetInvalid)},
		{"budgetPaused", budgetOpen(v1alpha1.ReasonBudgetPaused)},
		{"budgetWindow", budgetOpen(v1alpha1.ReasonOutsideBudgetWindow)},
		{"gates", gatesOpen},
		{"domains", domainFree},
		{"budget", budgetLeft},
	},
	halts: []rule[halt]{
		{"canary", canaryFailed},
		{"maxFailures", tooManyFailed},
	},
	endings: []rule[ending]{
		{"there", waveHasNode},
		{"updated", waveUpdated},
		{"offered", waveOffered},
		{"allowed", waveAllowed},
		{"complete", waveComplete},
		{"healthy", waveHealthy},
		{"soaked", waveSoaked},
		{"approved", waveApproved},
	},
	books: []rule[book]{
		{"slot", func(p *pass, c *candidate) { p.slots.start(c.Unit) }},
		{"budget", bookBudget},
	},
}

// candidate is a unit that waits for its start.
type candidate struct {
	*Unit
	node *Node
	// wave is the index of the unit's wave.
	wave int
	// accounts are those of the budgets that select the node. looked is true after the first check that needs them.
	accounts []*account
	looked   bool
}

// pass is the state that the checks of one Decide share.
type pass struct {
	*rules
	strategy *Strategy
	fleet    *Fleet
	now      time.Time
	next     time.Time

	// The results of the window and of the failure limit are the same for every unit.
	windowReason  v1alpha1.Reason
	windowMessage string
	halted        string

	wave  waves
	slots slots
	// candidates are all units that wait for their start. opened is true after their accounts were computed, for the first
	// unit that needs them.
	candidates []candidate
	opened     bool
}

// wake records an instant at which the answer can change.
func (p *pass) wake(at time.Time) { p.next = Earlier(p.next, at) }

// unknownNode is a node without any facts.
var unknownNode Node

func (p *pass) node(name string) *Node {
	if n := p.fleet.Nodes[name]; n != nil {
		return n
	}
	return &unknownNode
}

// Decide returns which units may start now, and why every other unit that needs a turn waits. It never starts a unit that
// needs no turn. Together with the turns in progress it never exceeds the strategy or a budget.
func Decide(s Strategy, units []Unit, fleet Fleet, now time.Time) Decision {
	return decide(&standard, s, units, fleet, now)
}

func decide(by *rules, s Strategy, units []Unit, fleet Fleet, now time.Time) Decision {
	p, order := newPass(by, &s, units, &fleet, now)
	var d Decision
	for i := range units {
		if u := &units[i]; u.State == v1alpha1.UnitFailed && !u.wantsStart(now) {
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
	d.Halted, d.Wave, d.Next = p.halted, p.wave.status, p.next
	return d
}

// newPass returns a pass, and the units that wait for their start, in order.
func newPass(by *rules, s *Strategy, units []Unit, fleet *Fleet, now time.Time) (*pass, []*candidate) {
	p := &pass{rules: by, strategy: s, fleet: fleet, now: now, slots: countSlots(s, units, now)}
	p.lookAtWindow()
	p.candidates = make([]candidate, 0, Count(units, func(u *Unit) bool { return u.wantsStart(now) }))
	for i := range units {
		if u := &units[i]; u.wantsStart(now) {
			p.candidates = append(p.candidates, candidate{Unit: u, node: p.node(u.Node)})
		}
	}
	order := p.sort(p.candidates)
	p.divideIntoWaves(units, order)
	p.lookAtFailures(units)
	return p, order
}

// admit returns why a unit may not start. If it may, admit books its cost and returns "".
func (p *pass) admit(c *candidate) (v1alpha1.Reason, string) {
	for i := range p.checks {
		if reason, message := p.checks[i].apply(p, c); reason != "" {
			return reason, message
		}
	}
	for i := range p.books {
		p.books[i].apply(p, c)
	}
	return "", ""
}
