// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/rollout"
)

// Schedule estimates when a rollout ends. The rollout's own engine simulates it, with its concurrency, waves, soaks, windows and
// budgets.
type Schedule struct {
	// TurnSeconds is the assumed duration of a turn.
	TurnSeconds int `json:"turnSeconds"`
	// End is about when the last node is updated; absent if a person must act first.
	End *metav1.Time `json:"end,omitempty"`
	// Stuck says why the rollout does not end without a person. Left is how many nodes remain then.
	Stuck string `json:"stuck,omitempty"`
	Left  int    `json:"left,omitempty"`
	// Without lists what the estimate leaves out.
	Without []string `json:"without,omitempty"`
}

// work bounds the simulation, as decisions times units. The rest is extrapolated.
const work = 4_000_000

// simulation is a simulated rollout.
type simulation struct {
	strategy rollout.Strategy
	units    []rollout.Unit
	index    map[string]int
	fleet    rollout.Fleet
	now      time.Time
	turn     time.Duration
	// room is another bound on how many nodes start now, and when it changes; nil is no bound.
	room func(*simulation) (int, time.Time)
	// starts and ends are the times of turns. frees are the ends of other rollouts' turns. ready is when blocked units can start.
	starts, ends, frees, ready map[string]time.Time
	without                    []string
}

// newSimulation returns a simulation that begins now.
func (c *Cluster) newSimulation(s rollout.Strategy, units []rollout.Unit, now time.Time, turn time.Duration) *simulation {
	p := &simulation{
		strategy: s, units: slices.Clone(units), index: make(map[string]int, len(units)), now: now, turn: turn,
		fleet:  rollout.Fleet{Nodes: maps.Clone(c.fleet.Nodes), Budgets: slices.Clone(c.fleet.Budgets)},
		starts: map[string]time.Time{}, ends: map[string]time.Time{}, frees: map[string]time.Time{},
	}
	for i := range p.units {
		p.index[p.units[i].Node] = i
	}
	p.removeBlocks()
	p.addTurns(c)
	return p
}

func (p *simulation) schedule() *Schedule {
	s := &Schedule{TurnSeconds: int(p.turn / time.Second)}
	end, left := p.run(s)
	s.Without, s.Left = p.without, left
	if s.Stuck == "" {
		s.End = known(end.UTC().Round(time.Second))
	}
	return s
}

// removeBlocks removes pauses and gates, whose end is unknown, and notes each in without.
func (p *simulation) removeBlocks() {
	if p.strategy.Paused {
		p.strategy.Paused = false
		p.without = append(p.without, "the time until it is resumed")
	}
	for i := range p.fleet.Budgets {
		b := &p.fleet.Budgets[i]
		if b.Paused {
			b.Paused = false
			p.without = append(p.without, "the time until budget "+b.Name+" is resumed")
		}
		for _, block := range b.Blocks {
			p.without = append(p.without, fmt.Sprintf("the time until budget %s opens (%s)", b.Name, block.Gate))
		}
		if blocked := p.blockedBy(b); len(blocked) > 0 {
			p.without = append(p.without, fmt.Sprintf("the time until budget %s opens for %s (%s)", b.Name, someOf(blocked), b.NodeBlocks[blocked[0]].Gate))
		}
		b.Blocks, b.NodeBlocks = nil, nil
	}
}

// blockedBy returns the nodes still to start that a gate of the budget blocks individually.
func (p *simulation) blockedBy(b *rollout.Budget) []string {
	var names []string
	for name := range b.NodeBlocks {
		if i, ok := p.index[name]; ok && p.units[i].State != v1alpha1.UnitUpdated && !p.units[i].Claimed {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// addTurns sets the ends of turns that have begun, of this rollout and of others.
func (p *simulation) addTurns(c *Cluster) {
	for i := range c.facts {
		f := &c.facts[i]
		own := held(f.claims, p.strategy.UID)
		n := p.fleet.Nodes[f.node.Name]
		if by := f.node.Annotations[v1alpha1.AnnotationCordonedBy]; by != "" && n.Unschedulable {
			// The turn's claim already counts, and the cordon ends with the turn.
			if slices.ContainsFunc(f.claims, func(c v1alpha1.Claim) bool { return c.Rollout == by }) {
				p.changeNode(n.Name, func(n *rollout.Node) { n.Unschedulable = false })
			}
		}
		unit, known := p.index[f.node.Name]
		switch {
		case own != nil && own.Failed == nil && known && (p.units[unit].State != v1alpha1.UnitOutdated):
			p.ends[n.Name] = latest(p.now, own.Since.Add(p.turn))
		case p.strategy.Claimless && known && p.units[unit].State == v1alpha1.UnitUpdating && !p.units[unit].Excused:
			p.ends[n.Name] = p.now.Add(p.turn)
		case own == nil && slices.ContainsFunc(f.claims, func(c v1alpha1.Claim) bool { return c.Failed == nil }):
			// Assume that other rollouts' turns take as long.
			p.frees[n.Name] = p.now.Add(p.turn)
		}
	}
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// earliest returns the earlier time; zero means never.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// changeNode changes a copy of a node.
func (p *simulation) changeNode(name string, how func(*rollout.Node)) {
	if before := p.fleet.Nodes[name]; before != nil {
		n := *before
		how(&n)
		p.fleet.Nodes[name] = &n
	}
}

// run simulates until nothing more happens. It returns the end time, and how many nodes are left.
func (p *simulation) run(s *Schedule) (end time.Time, left int) {
	began, before := p.now, p.countLeft()
	for range max(10, work/max(1, len(p.units))) {
		d := rollout.Decide(p.strategy, p.units, p.fleet, p.now)
		p.strategy.Wave = d.Wave
		if w := d.Wave; w != nil && w.State == v1alpha1.WaveWaitingForApproval && p.strategy.Approved != w.ApproveWith {
			p.strategy.Approved = w.ApproveWith
			p.without = append(p.without, "the time until wave "+w.Name+" is approved")
			continue
		}
		if p.room != nil {
			if n, more := p.room(p); n < len(d.Start) {
				d.Start, d.Next = d.Start[:n], earliest(d.Next, more)
			}
		}
		for _, name := range d.Start {
			p.start(name)
		}
		next := p.next(d.Next)
		if next.IsZero() {
			if left = p.countLeft(); left > 0 && s.Stuck == "" {
				s.Stuck = stuckReason(d)
			}
			return p.now, left
		}
		p.now = next
		p.endTurns()
	}
	left = p.countLeft()
	if before == left {
		s.Stuck = "nothing is updated in the time that was looked at"
		return p.now, left
	}
	p.without = append(p.without, fmt.Sprintf("anything special about the last %d nodes: their part is extrapolated", left))
	return p.now.Add(p.now.Sub(began) / time.Duration(before-left) * time.Duration(left)), 0
}

// stuckReason says why no more nodes start.
func stuckReason(d rollout.Decision) string {
	if d.Halted != nil {
		return string(v1alpha1.ReasonHalted) + ": " + d.Halted.Message
	}
	if i := slices.IndexFunc(d.Waiting, func(w rollout.Wait) bool { return !w.Holds }); i >= 0 {
		return string(d.Waiting[i].Reason) + ": " + d.Waiting[i].Message
	}
	if len(d.Waiting) == 0 {
		return ""
	}
	w := d.Waiting[0]
	return w.Node + " " + string(w.Reason) + ": " + w.Message
}

func (p *simulation) start(name string) {
	u := &p.units[p.index[name]]
	u.State, u.InTurn, u.Claimed, u.RetryAt, u.Reason, u.Message = v1alpha1.UnitUpdating, false, true, time.Time{}, "", ""
	p.starts[name], p.ends[name] = p.now, p.now.Add(p.turn)
	claim := v1alpha1.Claim{UID: p.strategy.UID, Rollout: "this rollout", Since: metav1.Time{Time: p.now}}
	p.changeNode(name, func(n *rollout.Node) { n.Claims = append(slices.Clone(n.Claims), claim) })
}

// next is when the next event happens; zero if there is none.
func (p *simulation) next(next time.Time) time.Time {
	for _, at := range []map[string]time.Time{p.ends, p.frees, p.ready} {
		for _, t := range at {
			next = earliest(next, t)
		}
	}
	return next
}

// endTurns ends the turns that are due.
func (p *simulation) endTurns() {
	for _, name := range p.takeDue(p.ends) {
		u := &p.units[p.index[name]]
		u.State, u.Claimed = v1alpha1.UnitUpdated, false
		p.release(name, func(c v1alpha1.Claim) bool { return c.UID == p.strategy.UID })
	}
	for _, name := range p.takeDue(p.ready) {
		u := &p.units[p.index[name]]
		u.Reason, u.Message = "", ""
	}
	for _, name := range p.takeDue(p.frees) {
		p.release(name, func(c v1alpha1.Claim) bool { return c.Failed == nil })
	}
}

// takeDue removes and returns the nodes that are due.
func (p *simulation) takeDue(of map[string]time.Time) (names []string) {
	for name, at := range of {
		if !at.After(p.now) {
			names = append(names, name)
			delete(of, name)
		}
	}
	return names
}

// release removes claims from a node.
func (p *simulation) release(name string, is func(v1alpha1.Claim) bool) {
	p.changeNode(name, func(n *rollout.Node) { n.Claims = slices.DeleteFunc(slices.Clone(n.Claims), is) })
}

// countLeft is how many nodes are not updated, without failed nodes that are not retried automatically.
func (p *simulation) countLeft() int {
	left := 0
	for i := range p.units {
		u := &p.units[i]
		if u.State != v1alpha1.UnitUpdated && (u.State != v1alpha1.UnitFailed || !u.RetryAt.IsZero()) {
			left++
		}
	}
	return left
}
