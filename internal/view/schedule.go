// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/rollout"
)

// Schedule is an estimate of when a rollout comes to its end, made by playing it with the engine that decides it: with its
// concurrency, waves, soaks and windows, and those of the budgets.
type Schedule struct {
	// TurnSeconds is how long a turn is taken to last.
	TurnSeconds int `json:"turnSeconds"`
	// End is about when the last node is updated; absent when that does not happen by itself.
	End *metav1.Time `json:"end,omitempty"`
	// Stuck says why it does not come to an end by itself, and Left how many nodes are left then.
	Stuck string `json:"stuck,omitempty"`
	Left  int    `json:"left,omitempty"`
	// Without lists what the estimate leaves out.
	Without []string `json:"without,omitempty"`
}

// work bounds how much is played: decisions times units. What is beyond is extrapolated.
const work = 4_000_000

// play is a rollout that is played.
type play struct {
	strategy rollout.Strategy
	units    []rollout.Unit
	index    map[string]int
	fleet    rollout.Fleet
	now      time.Time
	turn     time.Duration
	// room bounds how many are started now, beside what the engine says, and tells when it may be more; nil is no bound.
	room func(*play) (int, time.Time)
	// starts and ends are when turns start and end; frees is when other rollouts' turns do, and ripens when units that can't be started
	// can be.
	starts, ends, frees, ripens map[string]time.Time
	without                     []string
}

// newPlay begins to play a rollout at this time.
func (c *Cluster) newPlay(s rollout.Strategy, units []rollout.Unit, now time.Time, turn time.Duration) *play {
	p := &play{
		strategy: s, units: slices.Clone(units), index: make(map[string]int, len(units)), now: now, turn: turn,
		fleet:  rollout.Fleet{Nodes: maps.Clone(c.fleet.Nodes), Budgets: slices.Clone(c.fleet.Budgets)},
		starts: map[string]time.Time{}, ends: map[string]time.Time{}, frees: map[string]time.Time{},
	}
	for i := range p.units {
		p.index[p.units[i].Node] = i
	}
	p.suppose()
	p.underway(c)
	return p
}

// schedule plays the rollout with turns that take so long, and says when each node starts.
func (u *units) schedule(turn time.Duration) (*Schedule, map[string]time.Time) {
	p := u.cluster.newPlay(u.strategy, u.asked, u.now, turn)
	return p.schedule(), p.starts
}

func (p *play) schedule() *Schedule {
	s := &Schedule{TurnSeconds: int(p.turn / time.Second)}
	end, left := p.run(s)
	s.Without, s.Left = p.without, left
	if s.Stuck == "" {
		s.End = known(end.UTC().Round(time.Second))
	}
	return s
}

// suppose takes away what a person or the world must, and says so.
func (p *play) suppose() {
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
		if held := p.held(b); len(held) > 0 {
			p.without = append(p.without, fmt.Sprintf("the time until budget %s opens for %s (%s)", b.Name, someOf(held), b.NodeBlocks[held[0]].Gate))
		}
		b.Blocks, b.NodeBlocks = nil, nil
	}
}

// held are the nodes that are to be started, and that a gate of a budget keeps back for themselves.
func (p *play) held(b *rollout.Budget) []string {
	var names []string
	for name := range b.NodeBlocks {
		if i, ok := p.index[name]; ok && p.units[i].State != v1alpha1.UnitUpdated && !p.units[i].Claimed {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// underway sets when the turns end that are under way, this rollout's and those of others.
func (p *play) underway(c *Cluster) {
	for i := range c.facts {
		f := &c.facts[i]
		own := held(f.claims, p.strategy.UID)
		n := p.fleet.Nodes[f.node.Name]
		if by := f.node.Annotations[v1alpha1.AnnotationCordonedBy]; by != "" && n.Unschedulable {
			// Its claim counts until its turn ends, and with it the cordon.
			if slices.ContainsFunc(f.claims, func(c v1alpha1.Claim) bool { return c.Rollout == by }) {
				p.put(n.Name, func(n *rollout.Node) { n.Unschedulable = false })
			}
		}
		unit, known := p.index[f.node.Name]
		switch {
		case own != nil && own.Failed == nil && known && (p.units[unit].State != v1alpha1.UnitOutdated):
			p.ends[n.Name] = latest(p.now, own.Since.Add(p.turn))
		case p.strategy.Beside && known && p.units[unit].State == v1alpha1.UnitUpdating && !p.units[unit].Excused:
			p.ends[n.Name] = p.now.Add(p.turn)
		case own == nil && slices.ContainsFunc(f.claims, func(c v1alpha1.Claim) bool { return c.Failed == nil }):
			// How long others take is not known; about as long, then.
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

// earliest is the first of two instants; zero is never.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// put changes a copy of a node.
func (p *play) put(name string, how func(*rollout.Node)) {
	n := *p.fleet.Nodes[name]
	how(&n)
	p.fleet.Nodes[name] = &n
}

// run plays until nothing happens any more. It returns when that is, and how many nodes are left.
func (p *play) run(s *Schedule) (end time.Time, left int) {
	began, before := p.now, p.left()
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
			if left = p.left(); left > 0 && s.Stuck == "" {
				s.Stuck = stuck(d)
			}
			return p.now, left
		}
		p.now = next
		p.settle()
	}
	left = p.left()
	if before == left {
		s.Stuck = "nothing is updated in the time that was looked at"
		return p.now, left
	}
	p.without = append(p.without, fmt.Sprintf("anything special about the last %d nodes: their part is extrapolated", left))
	return p.now.Add(p.now.Sub(began) / time.Duration(before-left) * time.Duration(left)), 0
}

// stuck says why nothing goes on.
func stuck(d rollout.Decision) string {
	if d.Halted != nil {
		return string(v1alpha1.ReasonHalted) + ": " + d.Halted.Message
	}
	for _, w := range d.Waiting {
		if !w.Holds {
			return string(w.Reason) + ": " + w.Message
		}
	}
	for _, w := range d.Waiting {
		return w.Node + " " + string(w.Reason) + ": " + w.Message
	}
	return ""
}

func (p *play) start(name string) {
	u := &p.units[p.index[name]]
	u.State, u.InTurn, u.Claimed, u.RetryAt, u.Reason, u.Message = v1alpha1.UnitUpdating, false, true, time.Time{}, "", ""
	p.starts[name], p.ends[name] = p.now, p.now.Add(p.turn)
	claim := v1alpha1.Claim{UID: p.strategy.UID, Rollout: "this rollout", Since: metav1.Time{Time: p.now}}
	if p.fleet.Nodes[name] != nil {
		p.put(name, func(n *rollout.Node) { n.Claims = append(slices.Clone(n.Claims), claim) })
	}
}

// next is the next instant at which anything happens; zero when nothing does.
func (p *play) next(next time.Time) time.Time {
	for _, at := range []map[string]time.Time{p.ends, p.frees, p.ripens} {
		for _, t := range at {
			next = earliest(next, t)
		}
	}
	return next
}

// settle ends the turns whose time has come.
func (p *play) settle() {
	for name, at := range p.ends {
		if at.After(p.now) {
			continue
		}
		delete(p.ends, name)
		u := &p.units[p.index[name]]
		u.State, u.Claimed = v1alpha1.UnitUpdated, false
		p.put(name, func(n *rollout.Node) {
			n.Claims = slices.DeleteFunc(slices.Clone(n.Claims), func(c v1alpha1.Claim) bool { return c.UID == p.strategy.UID })
		})
	}
	for name, at := range p.ripens {
		if !at.After(p.now) {
			delete(p.ripens, name)
			u := &p.units[p.index[name]]
			u.Reason, u.Message = "", ""
		}
	}
	for name, at := range p.frees {
		if at.After(p.now) {
			continue
		}
		delete(p.frees, name)
		p.put(name, func(n *rollout.Node) {
			n.Claims = slices.DeleteFunc(slices.Clone(n.Claims), func(c v1alpha1.Claim) bool { return c.Failed == nil })
		})
	}
}

// left is how many nodes are not updated, but for failed ones that are not tried again by themselves.
func (p *play) left() int {
	left := 0
	for i := range p.units {
		u := &p.units[i]
		if u.State != v1alpha1.UnitUpdated && (u.State != v1alpha1.UnitFailed || !u.RetryAt.IsZero()) {
			left++
		}
	}
	return left
}

// Line says in a few words when the rollout ends.
func (s *Schedule) Line(now time.Time) string {
	text := ""
	switch {
	case s.Stuck != "":
		text = fmt.Sprintf("It does not end by itself: %d nodes are left, %s", s.Left, s.Stuck)
	case s.End != nil:
		text = fmt.Sprintf("It ends at about %s, in %s", s.End.UTC().Format("2006-01-02 15:04 MST"), s.End.Sub(now).Round(time.Second))
	}
	text += fmt.Sprintf("; a turn takes %s", time.Duration(s.TurnSeconds)*time.Second)
	if len(s.Without) > 0 {
		text += ". Not counted: " + strings.Join(s.Without, "; ")
	}
	return text + "."
}
