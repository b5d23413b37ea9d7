// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"maps"
	"math"
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
	cluster  *Cluster // as it is now
	strategy rollout.Strategy
	units    []rollout.Unit
	index    map[string]int
	fleet    rollout.Fleet
	now      time.Time
	turn     time.Duration
	// starts are the times at which turns start. events are what happens later by itself.
	starts map[string]time.Time
	events []event
	// room bounds how many nodes start now, and says when it changes. missing are nodes that start as soon as there is room, whatever the
	// engine decides.
	room    func() (int, time.Time)
	missing []string
	without []string
}

// event is what happens at a time in a simulation.
type event struct {
	at     time.Time
	happen func()
}

// newSimulation returns a simulation that begins now.
func (c *Cluster) newSimulation(s rollout.Strategy, units []rollout.Unit, now time.Time, turn time.Duration) *simulation {
	p := &simulation{
		cluster: c, strategy: s, units: slices.Clone(units), index: make(map[string]int, len(units)), now: now, turn: turn,
		fleet:  rollout.Fleet{Nodes: maps.Clone(c.fleet.Nodes), Budgets: slices.Clone(c.fleet.Budgets)},
		starts: map[string]time.Time{},
		room:   func() (int, time.Time) { return math.MaxInt, time.Time{} },
	}
	for i := range p.units {
		p.index[p.units[i].Node] = i
	}
	p.removeBlocks()
	// Turns of other rollouts are assumed to take as long. Their cordons end with them.
	isOther := func(c v1alpha1.Claim) bool { return c.UID != s.UID && c.Failed == nil }
	for _, n := range c.nodes {
		if n.Annotations[v1alpha1.AnnotationCordonedBy] != "" {
			p.changeNode(n.Name, func(n *rollout.Node) { n.Unschedulable = false })
		}
		if slices.ContainsFunc(p.fleet.Nodes[n.Name].Claims, isOther) {
			p.at(now.Add(turn), func() { p.changeNode(n.Name, func(n *rollout.Node) { n.EndTurn(isOther) }) })
		}
	}
	return p
}

// removeBlocks removes pauses and gates, whose end is unknown, and notes each in without. Nothing is noted of what ends by itself.
func (p *simulation) removeBlocks() {
	for i := range p.units {
		if u := &p.units[i]; slices.Contains(passing, u.Reason) {
			u.Reason, u.Message = "", ""
		}
	}
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
		isBlocked := func(u rollout.Unit) bool {
			return b.NodeBlocks[u.Node].Gate != "" && u.State != v1alpha1.UnitUpdated && !u.Claimed
		}
		if slices.ContainsFunc(p.units, isBlocked) {
			p.without = append(p.without, fmt.Sprintf("the time until budget %s opens for some nodes (%s)", b.Name, v1alpha1.ReasonPodsBlock))
		}
		b.Blocks, b.NodeBlocks = nil, nil
	}
}

// passing are reasons to wait for a cloud that end with turns, or soon.
var passing = []v1alpha1.Reason{v1alpha1.ReasonSurgeExhausted, v1alpha1.ReasonScaleSetBusy, v1alpha1.ReasonCloudThrottled, v1alpha1.ReasonReplacementPending}

// changeNode changes a copy of a node.
func (p *simulation) changeNode(name string, how func(*rollout.Node)) {
	if before := p.fleet.Nodes[name]; before != nil {
		n := *before
		how(&n)
		p.fleet.Nodes[name] = &n
	}
}

// at lets something happen at a time.
func (p *simulation) at(at time.Time, happen func()) { p.events = append(p.events, event{at, happen}) }

// endTurns ends the turns that have begun.
func (p *simulation) endTurns() {
	for i := range p.units {
		u := &p.units[i]
		inTurn := u.State == v1alpha1.UnitUpdating || u.State == v1alpha1.UnitSoaking
		if !inTurn || u.Excused || slices.Contains(p.missing, u.Node) {
			continue
		}
		since := u.Since
		if own := p.cluster.claimOn(u.Node, p.strategy.UID); own != nil {
			since = own.Since.Time
		} else if since.IsZero() {
			since = p.now
		}
		p.endTurn(u, rollout.Later(p.now, since.Add(p.turn)))
	}
}

// endTurn ends a turn at this time.
func (p *simulation) endTurn(u *rollout.Unit, at time.Time) {
	p.at(at, func() {
		u.State, u.InTurn, u.Claimed, u.Unoffered = v1alpha1.UnitUpdated, false, false, false
		p.changeNode(u.Node, func(n *rollout.Node) { n.EndTurn(func(c v1alpha1.Claim) bool { return c.UID == p.strategy.UID }) })
	})
}

// start starts a turn now.
func (p *simulation) start(name string) {
	u := &p.units[p.index[name]]
	u.State, u.InTurn, u.Claimed, u.RetryAt, u.Reason, u.Message = v1alpha1.UnitUpdating, false, true, time.Time{}, "", ""
	p.starts[name] = p.now
	claim := v1alpha1.Claim{UID: p.strategy.UID, Rollout: "this rollout", Since: metav1.Time{Time: p.now}}
	p.changeNode(name, func(n *rollout.Node) { n.Claims = append(slices.Clone(n.Claims), claim) })
	p.endTurn(u, p.now.Add(p.turn))
}

// schedule simulates the rollout. It returns nil if nothing is left to do by itself.
func (p *simulation) schedule() *Schedule {
	p.endTurns()
	s := &Schedule{TurnSeconds: int(p.turn / time.Second)}
	began, before := p.now, p.countLeft()
	if before == 0 && !p.now.After(p.cluster.now) {
		return nil // There is no canary either.
	}
	if slices.ContainsFunc(p.units, hasFailed) {
		p.without = append(p.without, "failed nodes")
	}
	last, ended := p.run()
	end, left := p.now, p.countLeft()
	switch {
	case ended && left > 0:
		s.Left, s.Stuck = left, stuckReason(&last)
	case ended:
	case left == before:
		s.Left, s.Stuck = left, "nothing is updated in the time that was looked at"
	default:
		end = end.Add(end.Sub(began) / time.Duration(before-left) * time.Duration(left))
		p.without = append(p.without, fmt.Sprintf("anything special about the last %d nodes: their part is extrapolated", left))
	}
	if s.Without = p.without; s.Stuck == "" {
		s.End = timeOrNil(end.UTC().Round(time.Second))
	}
	return s
}

// run simulates until nothing more happens, or until it takes too long. It returns the last decision, and whether nothing more happens.
func (p *simulation) run() (last rollout.Decision, ended bool) {
	for range max(10, work/max(1, len(p.units))) {
		d := rollout.Decide(p.strategy, p.units, p.fleet, p.now)
		p.strategy.Wave = d.Wave
		if w := d.Wave; w != nil && w.State == v1alpha1.WaveWaitingForApproval && !slices.Contains(p.strategy.Approved, w.ApproveWith) {
			p.strategy.Approved = []string{w.ApproveWith}
			p.without = append(p.without, "the time until wave "+w.Name+" is approved")
			continue
		}
		p.startNodes(&d)
		next := d.Next
		for _, e := range p.events {
			next = rollout.Earlier(next, e.at)
		}
		if next.IsZero() || p.countLeft() == 0 { // Not when a window opens for nothing.
			return d, true
		}
		p.now = next
		p.events = slices.DeleteFunc(p.events, func(e event) bool {
			isDue := !e.at.After(p.now)
			if isDue {
				e.happen()
			}
			return isDue
		})
	}
	return last, false
}

// startNodes starts the missing nodes, and then those of the decision, while there is room.
func (p *simulation) startNodes(d *rollout.Decision) {
	all := slices.Concat(p.missing, d.Start)
	room, _ := p.room()
	room = min(room, len(all))
	for _, name := range all[:room] {
		p.start(name)
	}
	if p.missing = p.missing[min(room, len(p.missing)):]; room < len(all) {
		_, more := p.room()
		d.Next = rollout.Earlier(d.Next, more)
	}
}

// stuckReason says why no more nodes start.
func stuckReason(d *rollout.Decision) string {
	if d.Halted != "" {
		return string(v1alpha1.ReasonHalted) + ": " + d.Halted
	}
	if len(d.Waiting) == 0 {
		return "what their turns wait for does not end by itself"
	}
	i := slices.IndexFunc(d.Waiting, func(w rollout.Wait) bool { return !w.Holds })
	w := d.Waiting[max(0, i)]
	return string(w.Reason) + ": " + w.Message
}

// hasFailed reports whether a unit has failed and is not retried by itself.
func hasFailed(u rollout.Unit) bool { return u.State == v1alpha1.UnitFailed && u.RetryAt.IsZero() }

// countLeft is how many nodes will be updated, if nothing stops the rollout.
func (p *simulation) countLeft() int {
	left := 0
	for _, u := range p.units {
		if u.State != v1alpha1.UnitUpdated && !hasFailed(u) {
			left++
		}
	}
	return left
}
