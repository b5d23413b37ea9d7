// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"math"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/kind/nodeturn"
	"moult.dev/moult/internal/rollout"
)

// units are a rollout with its units, as its controller judges them.
type units struct {
	cluster *Cluster
	// described is the rollout as its spec and status describe it. listed are the units that its status lists.
	described  Rollout
	listed     []Node
	conditions rolloutConditions
	// problem says why nothing can start; else "".
	problem string

	// judged is true if nodes has all units. Else nodes has those that the status lists.
	judged   bool
	nodes    []Node
	optedOut int32
	// unknown are the nodes of which only the operator knows whether they are outdated.
	unknown []string

	// engineUnits and strategy are the engine's input; decision is its output. decided is false if the rollout can't start nodes, or if the pods of an
	// ExtendedDaemonSet were not read.
	engineUnits []rollout.Unit
	strategy    rollout.Strategy
	decided     bool
	decision    rollout.Decision
}

// decide asks the engine about a rollout's turns, and makes a line for each. The node called named counts even if it opted out.
func decide[T nodeturn.Any](u *units, turns []T, named string, strategy func(total int) rollout.Strategy, line func(T, *rollout.Wait) Node) {
	turns = slices.DeleteFunc(turns, func(t T) bool {
		b := t.Base()
		optedOut := b.Unit.OptedOut && b.Claim == nil && b.Counted
		if optedOut {
			u.optedOut++
		}
		return optedOut && b.Unit.Node != named || !b.Counted && !b.Unit.HoldsSlot()
	})
	engineUnits, total := nodeturn.Units(turns)
	u.judged, u.nodes, u.engineUnits, u.strategy = true, nil, engineUnits, strategy(total)
	if u.decided {
		u.decision = rollout.Decide(u.strategy, u.engineUnits, u.cluster.fleet, u.cluster.now)
		if len(u.unknown) == 0 {
			u.described.Wave = u.decision.Wave
		}
	}
	waits := make(map[string]*rollout.Wait, len(u.decision.Waiting))
	for i := range u.decision.Waiting {
		waits[u.decision.Waiting[i].Node] = &u.decision.Waiting[i]
	}
	for _, t := range turns {
		if b := t.Base(); !b.Unit.OptedOut || b.Claim != nil {
			u.nodes = append(u.nodes, line(t, waits[b.Unit.Node]))
		}
	}
	var waiting []rollout.Wait
	for i := range u.listed {
		if n := &u.listed[i]; n.State == v1alpha1.UnitOutdated {
			waiting = append(waiting, rollout.Wait{Node: n.Node, Reason: n.Reason, Message: n.Message})
		}
	}
	sortByStart(u.nodes, append(waiting, u.decision.Waiting...)) // The controller knows more than view does, so its status comes first.
}

// line shows a unit and the phase of its turn, as its controller writes them to the status. If the status is of the same phase or failure,
// its message is shown: the controller knows more.
func (u *units) line(t *nodeturn.Turn, wait *rollout.Wait, phase v1alpha1.Phase, since time.Time, message string) Node {
	line := Node{Node: t.Unit.Node, State: t.Unit.State}
	u.cluster.addNodeState(&line)
	if t.Claim != nil {
		line.Started = &t.Claim.Since
	}
	status := u.inStatus(line.Node)
	switch {
	case t.Unit.State == v1alpha1.UnitFailed:
		s := t.FailedStatus(wait)
		line.Since, line.Reason, line.Message = s.Since, s.Reason, s.Message
		line.Skipped, line.RetryAt = t.Unit.Skipped, timeOrNil(t.Unit.RetryAt)
		if status.State == v1alpha1.UnitFailed && status.Since.Equal(line.Since) {
			line.Message = status.Message
		}
	case t.Unit.HoldsSlot():
		s := t.TurnStatus(phase, since, message, wait)
		line.State, line.Phase, line.Since, line.Reason, line.Message = turnState(phase), phase, s.Since, s.Reason, s.Message
		if status.InTurn() && status.Phase == phase && status.Message != "" {
			line.Reason, line.Message = status.Reason, status.Message
		}
	}
	return line
}

// inStatus returns a node's entry in the status; zero if there is none.
func (u *units) inStatus(node string) Node {
	if i := indexOf(u.listed, node); i >= 0 {
		return u.listed[i]
	}
	return Node{}
}

// rollout summarizes the units.
func (u *units) rollout() Rollout {
	r := u.described
	r.Nodes, r.OptedOut = sortForDisplay(u.nodes), u.optedOut
	if u.judged && len(u.unknown) == 0 {
		r.Counts = count(u.nodes)
	}
	r.Halted = cmp.Or(u.decision.Halted, r.Halted)
	r.Budgets = u.cluster.budgetsOf(r.Nodes)
	r.State, r.Message, r.Since = u.conditions.state(&r, u.cluster.now)
	return r
}

// explain adds the result of every check to a node's part.
func (u *units) explain(part *Part) {
	name := part.Unit.Node
	part.OptedOut = slices.ContainsFunc(u.engineUnits, func(u rollout.Unit) bool { return u.Node == name && u.OptedOut })
	if !u.judged && indexOf(u.nodes, name) < 0 {
		part.unjudged(u.problem)
	}
	if !u.decided {
		return
	}
	part.addChecks(rollout.Explain(u.strategy, u.engineUnits, u.cluster.fleet, u.cluster.now, name))
	if part.Place == 0 {
		return
	}
	byEvictions := slices.ContainsFunc(u.strategy.Order, func(o v1alpha1.Order) bool { return o.By == v1alpha1.OrderFewestEvictionsFirst })
	if _, counted := u.cluster.fleet.Evictions[name]; byEvictions && !counted {
		part.Note = "its place is by the other criteria only: the pods that drains would evict are not counted here"
	}
	// Only the operator knows some reasons, and writes them into the status.
	status := u.inStatus(name)
	known := slices.ContainsFunc(part.Checks, func(c Check) bool { return c.Reason == status.Reason })
	if status.State == v1alpha1.UnitOutdated && !known && slices.Contains(operatorReasons, status.Reason) {
		part.Checks = append(part.Checks, Check{Name: checkOperator, Reason: status.Reason, Message: status.Message})
	}
}

// operatorReasons are the reasons that only the operator can find.
var operatorReasons = append(slices.Concat(operatorGates, machineReasons), v1alpha1.ReasonJobRefused, v1alpha1.ReasonClaimLost, v1alpha1.ReasonWindowsImageMissing)

// listedUnits returns the units that a status lists. A node in several lists is that of the first.
func listedUnits(failed, updating, waiting []v1alpha1.UnitStatus) (nodes []Node) {
	for i, list := range [][]v1alpha1.UnitStatus{failed, updating, waiting} {
		for _, s := range list {
			state := []v1alpha1.UnitState{v1alpha1.UnitFailed, turnState(s.Phase), v1alpha1.UnitOutdated}[i]
			if indexOf(nodes, s.Node) < 0 {
				nodes = append(nodes, Node{Node: s.Node, State: state, Phase: s.Phase, Since: s.Since, Reason: s.Reason, Message: s.Message})
			}
		}
	}
	return nodes
}

// turnState is the unit state for a phase.
func turnState(p v1alpha1.Phase) v1alpha1.UnitState {
	if p == v1alpha1.PhaseSoaking {
		return v1alpha1.UnitSoaking
	}
	return v1alpha1.UnitUpdating
}

// sortByStart sorts units by their order of start, and sets the reason of each that waits. If a node is in waiting several times, the first
// counts. Units that are about to start are not in waiting, and come first.
func sortByStart(nodes []Node, waiting []rollout.Wait) {
	place := make(map[string]int, len(waiting))
	for i := range slices.Backward(waiting) {
		place[waiting[i].Node] = i + 1
	}
	for i := range nodes {
		if n := &nodes[i]; n.State == v1alpha1.UnitOutdated && place[n.Node] > 0 {
			w := &waiting[place[n.Node]-1]
			n.Reason, n.Message = w.Reason, w.Message
		}
	}
	slices.SortStableFunc(nodes, func(a, b Node) int { return cmp.Compare(place[a.Node], place[b.Node]) })
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

// displayOrder is the order in which units are shown, by state.
var displayOrder = map[v1alpha1.UnitState]int{
	v1alpha1.UnitFailed: 0, v1alpha1.UnitUpdating: 1, v1alpha1.UnitSoaking: 1, v1alpha1.UnitOutdated: 2, v1alpha1.UnitUpdated: 3,
}

// sortForDisplay sorts units for display: failed, in a turn, waiting, updated. Waiting units keep their order.
func sortForDisplay(nodes []Node) []Node {
	slices.SortStableFunc(nodes, func(a, b Node) int {
		if c := cmp.Compare(displayOrder[a.State], displayOrder[b.State]); c != 0 || a.State == v1alpha1.UnitOutdated {
			return c
		}
		return cmp.Or(turnStart(&a).Compare(turnStart(&b)), cmp.Compare(a.Node, b.Node))
	})
	return nodes
}

// turnStart is when a unit's turn began; zero if unknown.
func turnStart(n *Node) time.Time {
	if n.State == v1alpha1.UnitUpdated {
		return time.Time{}
	}
	return ptr.Deref(cmp.Or(n.Started, n.Since), metav1.Time{}).Time
}

// KindNodeRollout is Rollout.Kind of a NodeRollout.
const KindNodeRollout = "NodeRollout"

// describe returns what the spec and the status of a NodeRollout say of it, for any mechanism. invalid is an error of its spec. In a preview the
// spec may be newer than the status.
func (c *Cluster) describe(nr *v1alpha1.NodeRollout, invalid error, preview *Supposition) units {
	s := &nr.Status
	u := units{cluster: c, listed: listedUnits(s.Failed, s.Updating, s.Waiting)}
	u.nodes = u.listed
	u.described = Rollout{
		Kind: KindNodeRollout, Name: nr.Name, Version: s.Revision, Revision: s.Revision, Versions: s.Versions, Wave: s.Wave,
		RolledBack: s.RolledBack, TurnSeconds: s.TurnSeconds, Paused: nr.Spec.Strategy != nil && nr.Spec.Strategy.Paused, ScaleSets: s.ScaleSets,
		Counts: ptr.Deref(s.Counts, v1alpha1.UnitCounts{}), History: s.History,
	}
	u.conditions = rolloutConditions{
		object: nr, observed: s.ObservedGeneration,
		complete: meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionReady),
		stalled:  meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionStalled),
	}
	if c := u.conditions.complete; c != nil && len(s.ScaleSets) == 0 && slices.Contains(machineReasons, v1alpha1.Reason(c.Reason)) {
		u.conditions.message = c.Message // No scale set shows it.
	}
	if c := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionAgentsBounded); c != nil && c.Status == metav1.ConditionFalse {
		u.described.PolicyMissing = c.Message
	}
	switch {
	case nr.DeletionTimestamp != nil && nr.Spec.Replacement != nil:
		u.problem = "the rollout is being deleted: its turns end first"
	case nr.DeletionTimestamp != nil:
		u.problem = "the rollout is being deleted, and its nodes are released"
	case invalid != nil:
		u.problem = invalid.Error()
	case preview == nil || !preview.Changed:
		u.problem = u.conditions.refusal()
	}
	return u
}
