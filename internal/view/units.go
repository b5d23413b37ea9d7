// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/rollout"
)

// units are one Plan's.
type units struct {
	cluster  *Cluster
	plan     *upgradev1.Plan
	now      time.Time
	nodes    []Node
	optedOut int32
	// assumed takes the Plan for valid and resolved, whatever its controller has said.
	assumed bool

	// asked is what the engine is asked about, with this strategy, and decision its answer.
	asked    []rollout.Unit
	strategy rollout.Strategy
	decision rollout.Decision
}

// listed are the units that a status lists.
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

// turning is the state that goes with a phase.
func turning(p v1alpha1.Phase) v1alpha1.UnitState {
	if p == v1alpha1.PhaseSoaking {
		return v1alpha1.UnitSoaking
	}
	return v1alpha1.UnitUpdating
}

// observe judges every node that the Plan selects or has a claim on, and asks the engine. A node that is named counts also
// where it has opted out.
func (c *Cluster) observe(p *upgradev1.Plan, named string) *units {
	u := &units{cluster: c, plan: p, now: c.now}
	u.observe(named)
	return u
}

func (u *units) observe(named string) {
	c, p := u.cluster, u.plan
	told := u.told()
	selector := u.selector()
	for i := range c.facts {
		f := &c.facts[i]
		own := held(f.claims, p.UID)
		_, hasHostname := f.node.Labels[corev1.LabelHostname]
		selected := hasHostname && selector.Matches(labels.Set(f.node.Labels))
		if own == nil && !selected {
			continue
		}
		optedOut := own == nil && f.node.Labels[upgradev1.LabelPlanHash(p.Name)] == upgradev1.LabelDisabled
		if optedOut {
			u.optedOut++
			if f.node.Name == named {
				u.asked = append(u.asked, rollout.Unit{Node: named, State: v1alpha1.UnitOutdated, OptedOut: true})
			}
			continue
		}
		line := u.judge(f, own, told)
		u.nodes = append(u.nodes, line)
		u.asked = append(u.asked, u.engine(f, own, &line, told))
	}
	u.strategy = strategy(p, len(u.nodes))
	u.strategy.OwnNode = c.ownNode
	u.explain(told)
}

// judge tells a unit's state from its node's claim and label.
func (u *units) judge(f *fact, own *v1alpha1.Claim, told map[string]entry) Node {
	line := Node{Node: f.node.Name, State: v1alpha1.UnitOutdated, NotReady: !f.ready, Cordoned: f.node.Spec.Unschedulable}
	status := told[f.node.Name]
	value := f.node.Labels[upgradev1.LabelPlanHash(u.plan.Name)]
	if own != nil {
		line.Started = &own.Since
	}
	switch {
	case own == nil && value != "" && value == u.plan.Status.LatestHash:
		line.State = v1alpha1.UnitUpdated
	case own == nil:
	case own.Failed != nil && status.state == v1alpha1.UnitOutdated && status.Reason != own.Failed.Reason:
		// It failed, the Plan has changed since, and it waits for another turn.
	case own.Failed != nil:
		line.fails(own, u.plan.Spec.Strategy)
	case own.Soaking != nil:
		line.State, line.Phase, line.Since = v1alpha1.UnitSoaking, v1alpha1.PhaseSoaking, own.Soaking
	case status.Phase != "" && status.Since != nil && status.Since.Unix() >= own.Since.Unix():
		line.State, line.Phase, line.Since, line.Message = turning(status.Phase), status.Phase, status.Since, status.Message
	default:
		// What the status tells is of an earlier turn.
		line.State, line.Phase, line.Since = v1alpha1.UnitUpdating, v1alpha1.PhaseClaimed, &own.Since
	}
	return line
}

// fails makes the line that of a failed turn.
func (n *Node) fails(own *v1alpha1.Claim, s *v1alpha1.Strategy) {
	f := own.Failed
	n.State, n.Since, n.Skipped, n.Reason, n.Message = v1alpha1.UnitFailed, &f.Time, f.Skipped, f.Reason, f.Message
	if s != nil && !f.Skipped {
		n.RetryAt = known(rollout.RetryAt(s.Retries, own.Failures, f.Time.Time))
	}
}

// engine is the unit as the engine wants it.
func (u *units) engine(f *fact, own *v1alpha1.Claim, line *Node, told map[string]entry) rollout.Unit {
	ask := rollout.Unit{
		Node: line.Node, State: line.State, Claimed: own != nil && !own.Parked(), Skipped: line.Skipped,
		Reason: line.Reason, Message: line.Message,
	}
	if own == nil {
		ask.Rank = max(1, rollout.Rank(f.node.UID, u.plan.UID, u.plan.Status.LatestHash))
	}
	if line.RetryAt != nil {
		ask.RetryAt = line.RetryAt.Time
	}
	if line.State != v1alpha1.UnitOutdated {
		return ask
	}
	hostname := f.node.Labels[corev1.LabelHostname]
	switch status := told[line.Node]; {
	case status.state == v1alpha1.UnitOutdated && status.Reason == v1alpha1.ReasonWindowsImageMissing:
		ask.Reason, ask.Message = status.Reason, status.Message // It depends on the operator's settings.
	case u.cluster.hosts[hostname] > 1:
		ask.Reason = v1alpha1.ReasonHostnameShared
		ask.Message = "another node has the same label " + corev1.LabelHostname + "=" + hostname + ", by which its Job would find it"
	}
	return ask
}

// explain asks the engine, and says of each unit that waits why.
func (u *units) explain(told map[string]entry) {
	if u.ready() {
		u.decision = rollout.Decide(u.strategy, u.asked, u.cluster.fleet, u.now)
	}
	explain(u.nodes, u.decision.Waiting, told)
}

// explain says of each unit that waits why, and puts them in the order in which they come. What the status says comes first: its
// controller knows more than is to be seen here.
func explain(nodes []Node, waiting []rollout.Wait, told map[string]entry) {
	type wait struct {
		rollout.Wait
		place int
	}
	waits := map[string]wait{}
	for i, w := range waiting {
		waits[w.Node] = wait{w, len(told) + i}
	}
	for name, e := range told {
		if e.state == v1alpha1.UnitOutdated {
			waits[name] = wait{rollout.Wait{Node: name, Reason: e.Reason, Message: e.Message}, e.place}
		}
	}
	for i := range nodes {
		if n := &nodes[i]; n.State == v1alpha1.UnitOutdated {
			n.Reason, n.Message = waits[n.Node].Reason, waits[n.Node].Message
		}
	}
	// Those about to start have no place among those that wait, and so come first.
	slices.SortStableFunc(nodes, func(a, b Node) int {
		return cmp.Compare(waits[a.Node].place, waits[b.Node].place)
	})
}

// strategy is the Plan's, as its controller reads it, for so many nodes that did not opt out.
func strategy(p *upgradev1.Plan, nodes int) rollout.Strategy {
	s := rollout.New(p.Spec.Strategy, int(min(p.Spec.Concurrency, math.MaxInt32)), nodes)
	s.UID, s.Revision = p.UID, p.Status.LatestHash
	s.Shared = !p.Spec.Exclusive && !p.Spec.Cordon && p.Spec.Drain == nil
	s.Drains = p.Spec.Drain != nil
	s.Wave, s.Approved = p.Status.Wave, p.Annotations[v1alpha1.AnnotationApprove]
	if w := p.Spec.Window; w != nil {
		days := make([]string, len(w.Days))
		for i, day := range w.Days {
			days[i] = string(day)
		}
		var err error
		if s.Window, err = rollout.NewWindow(days, w.StartTime, w.EndTime, w.TimeZone); err != nil {
			s.WindowError = "spec.window: " + err.Error()
		}
	}
	return s
}

// selector is the Plan's, or one that selects nothing while the Plan is not valid and resolved.
func (u *units) selector() labels.Selector {
	if selector, err := metav1.LabelSelectorAsSelector(u.plan.Spec.NodeSelector); err == nil && u.ready() {
		return selector
	}
	return labels.Nothing()
}

func (u *units) ready() bool { return u.assumed || ready(u.plan) }

// ready reports whether the Plan's controller has found it valid and resolved.
func ready(p *upgradev1.Plan) bool {
	c := p.Status.Condition(upgradev1.ConditionComplete)
	return c != nil && c.Reason != upgradev1.ReasonNotReady
}

// entry is what the status lists of one node.
type entry struct {
	v1alpha1.UnitStatus
	state v1alpha1.UnitState
	place int
}

func (u *units) told() map[string]entry {
	return entries(u.plan.Status.Updating, u.plan.Status.Waiting)
}

// entries are what a status lists of the nodes that are in a turn or wait, by node.
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

// sorted puts units in the order in which people want to see them. Those that wait keep theirs.
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

// began is when a unit's turn began, as far as that is known.
func began(n *Node) time.Time {
	for _, t := range []*metav1.Time{n.Started, n.Since} {
		if t != nil && n.State != v1alpha1.UnitUpdated {
			return t.Time
		}
	}
	return time.Time{}
}
