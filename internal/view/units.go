// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"math"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/kind/nodeturn"
	"moult.dev/moult/internal/rollout"
)

// units are the units of a Plan or of a NodeRollout with hostUpdate, as its controller judges them.
type units struct {
	nodes    []Node
	optedOut int32
	// asked and strategy are the engine's input; decision is its output. decided is false if the rollout can't start nodes.
	asked    []rollout.Unit
	strategy rollout.Strategy
	decided  bool
	decision rollout.Decision
}

// decide asks the engine about a rollout's turns, and makes a line for each. The node called named counts even if it opted out.
// recorded is what the status lists.
func decide[T nodeturn.Taker](
	c *Cluster, turns []T, named string, recorded map[string]entry, decides bool, strategy func(total int) rollout.Strategy, line func(T, *rollout.Wait, entry) Node,
) units {
	u := units{decided: decides}
	turns = slices.DeleteFunc(turns, func(t T) bool {
		b := t.Base()
		optedOut := b.Unit.OptedOut && b.Claim == nil && b.Counted
		if optedOut {
			u.optedOut++
		}
		return optedOut && b.Node.Name != named || !b.Counted && !b.Unit.HoldsSlot()
	})
	asked, total := nodeturn.Units(turns)
	u.asked, u.strategy = asked, strategy(total)
	if decides {
		u.decision = rollout.Decide(u.strategy, u.asked, c.fleet, c.now)
	}
	waits := make(map[string]*rollout.Wait, len(u.decision.Waiting))
	for i := range u.decision.Waiting {
		waits[u.decision.Waiting[i].Node] = &u.decision.Waiting[i]
	}
	for _, t := range turns {
		if b := t.Base(); !b.Unit.OptedOut || b.Claim != nil {
			u.nodes = append(u.nodes, line(t, waits[b.Node.Name], recorded[b.Node.Name]))
		}
	}
	explain(u.nodes, u.decision.Waiting, recorded)
	return u
}

// line shows a unit and the phase of its turn, as its controller writes them to the status.
func (c *Cluster) line(t *nodeturn.Turn, wait *rollout.Wait, phase v1alpha1.Phase, since time.Time, message string) Node {
	line := Node{Node: t.Node.Name, State: t.Unit.State, NotReady: !c.named[t.Node.Name].ready, Cordoned: t.Node.Spec.Unschedulable}
	if t.Claim != nil {
		line.Started = &t.Claim.Since
	}
	switch {
	case t.Unit.State == v1alpha1.UnitFailed:
		s := t.FailedStatus(wait)
		line.Since, line.Reason, line.Message = s.Since, s.Reason, s.Message
		line.Skipped, line.RetryAt = t.Unit.Skipped, known(t.Unit.RetryAt)
	case t.Unit.HoldsSlot():
		s := t.TurnStatus(phase, since, message, wait)
		line.State, line.Phase, line.Since, line.Reason, line.Message = turning(phase), phase, s.Since, s.Reason, s.Message
	}
	return line
}

// sumUp adds the summary of the units to the rollout.
func (u *units) sumUp(c *Cluster, r *Rollout) {
	r.Counts, r.OptedOut, r.Nodes = count(u.nodes), u.optedOut, sorted(u.nodes)
	r.Budgets = c.selecting(r.Nodes)
	if u.decided {
		r.Wave = u.decision.Wave
	}
	if h := u.decision.Halted; h != nil {
		r.Halted = h.Message
	}
}

// listed returns the units that a status lists.
func listed(failed, updating, waiting []v1alpha1.UnitStatus) []Node {
	var nodes []Node
	for _, f := range failed {
		nodes = append(nodes, unit(f, v1alpha1.UnitFailed))
	}
	for _, f := range updating {
		nodes = append(nodes, unit(f, turning(f.Phase)))
	}
	for _, f := range waiting {
		nodes = append(nodes, unit(f, v1alpha1.UnitOutdated))
	}
	return nodes
}

func unit(s v1alpha1.UnitStatus, state v1alpha1.UnitState) Node {
	return Node{Node: s.Node, State: state, Phase: s.Phase, Since: s.Since, Reason: s.Reason, Message: s.Message}
}

// turning is the unit state for a phase.
func turning(p v1alpha1.Phase) v1alpha1.UnitState {
	if p == v1alpha1.PhaseSoaking {
		return v1alpha1.UnitSoaking
	}
	return v1alpha1.UnitUpdating
}

// explain sets the reason of each waiting unit, and sorts the units by their order of start. An entry in the status wins:
// the controller knows more than view does.
func explain(nodes []Node, waiting []rollout.Wait, recorded map[string]entry) {
	type wait struct {
		rollout.Wait
		place int
	}
	waits := map[string]wait{}
	for i, w := range waiting {
		waits[w.Node] = wait{w, len(recorded) + i}
	}
	for name, e := range recorded {
		if e.state == v1alpha1.UnitOutdated {
			waits[name] = wait{rollout.Wait{Node: name, Reason: e.Reason, Message: e.Message}, e.place}
		}
	}
	for i := range nodes {
		if n := &nodes[i]; n.State == v1alpha1.UnitOutdated {
			n.Reason, n.Message = waits[n.Node].Reason, waits[n.Node].Message
		}
	}
	// Units that are about to start have no place, and so come first.
	slices.SortStableFunc(nodes, func(a, b Node) int {
		return cmp.Compare(waits[a.Node].place, waits[b.Node].place)
	})
}

// entry is a node's entry in the status.
type entry struct {
	v1alpha1.UnitStatus
	state v1alpha1.UnitState
	place int
}

// entries returns a status's entries for nodes that are in a turn or wait, by node.
func entries(updating, waiting []v1alpha1.UnitStatus) map[string]entry {
	all := make(map[string]entry, len(updating)+len(waiting))
	for i, w := range waiting {
		all[w.Node] = entry{w, v1alpha1.UnitOutdated, 1 + i}
	}
	for _, t := range updating {
		all[t.Node] = entry{t, v1alpha1.UnitUpdating, 0}
	}
	return all
}

func held(claims []v1alpha1.Claim, by types.UID) *v1alpha1.Claim {
	for i := range claims {
		if claims[i].UID == by {
			return &claims[i]
		}
	}
	return nil
}

// count sums up units by state.
func count(nodes []Node) v1alpha1.UnitCounts {
	c := v1alpha1.UnitCounts{Total: int32(min(len(nodes), math.MaxInt32))}
	for i := range nodes {
		switch nodes[i].State {
		case v1alpha1.UnitUpdated:
			c.Updated++
		case v1alpha1.UnitUpdating, v1alpha1.UnitSoaking:
			c.Updating++
		case v1alpha1.UnitFailed:
			c.Failed++
		case v1alpha1.UnitOutdated:
			c.Waiting++
		}
	}
	return c
}

// sorted sorts units for display: failed, in a turn, waiting, updated. Waiting units keep their order.
func sorted(nodes []Node) []Node {
	rank := func(n *Node) int {
		switch n.State {
		case v1alpha1.UnitFailed:
			return 0
		case v1alpha1.UnitUpdating, v1alpha1.UnitSoaking:
			return 1
		case v1alpha1.UnitOutdated:
			return 2
		case v1alpha1.UnitUpdated:
		}
		return 3
	}
	slices.SortStableFunc(nodes, func(a, b Node) int {
		if c := cmp.Compare(rank(&a), rank(&b)); c != 0 || a.State == v1alpha1.UnitOutdated {
			return c
		}
		return cmp.Or(began(&a).Compare(began(&b)), cmp.Compare(a.Node, b.Node))
	})
	return nodes
}

// began is when a unit's turn began; zero if unknown.
func began(n *Node) time.Time {
	for _, t := range []*metav1.Time{n.Started, n.Since} {
		if t != nil && n.State != v1alpha1.UnitUpdated {
			return t.Time
		}
	}
	return time.Time{}
}
