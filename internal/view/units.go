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

// fact is what one node tells of itself.
type fact struct {
	node   *corev1.Node
	claims []v1alpha1.Claim
	err    error // why the claims can't be read
	ready  bool
}

// read returns nil for nil: nodes that may not be seen are not the same as none.
func read(nodes []corev1.Node) []fact {
	if nodes == nil {
		return nil
	}
	facts := make([]fact, 0, len(nodes))
	for i := range nodes {
		n := &nodes[i]
		f := fact{node: n}
		f.claims, f.err = v1alpha1.ParseClaims(n.Annotations)
		for _, c := range n.Status.Conditions {
			f.ready = f.ready || c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		}
		facts = append(facts, f)
	}
	return facts
}

// units are one Plan's.
type units struct {
	plan     *upgradev1.Plan
	now      time.Time
	nodes    []Node
	optedOut int32
}

// list takes what the status lists.
func (u *units) list() {
	s := &u.plan.Status
	for _, f := range s.Failed {
		u.nodes = append(u.nodes, unit(f, v1alpha1.UnitFailed))
	}
	for _, f := range s.Updating {
		u.nodes = append(u.nodes, unit(f, turning(f.Phase)))
	}
	for _, f := range s.Waiting {
		u.nodes = append(u.nodes, unit(f, v1alpha1.UnitOutdated))
	}
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

// observe judges every node that the Plan selects or has a claim on.
func (u *units) observe(facts []fact) {
	told := u.told()
	selector := u.selector()
	var asked []rollout.Unit
	fleet := rollout.Fleet{}
	for i := range facts {
		f := &facts[i]
		n := f.node
		own := held(f.claims, u.plan.UID)
		_, named := n.Labels[corev1.LabelHostname]
		selected := named && selector.Matches(labels.Set(n.Labels))
		if own == nil && !selected {
			continue
		}
		value := n.Labels[upgradev1.LabelPlanHash(u.plan.Name)]
		if own == nil && value == upgradev1.LabelDisabled {
			u.optedOut++
			continue
		}
		line := u.judge(f, own, value, told)
		u.nodes = append(u.nodes, line)
		if line.State == v1alpha1.UnitUpdated {
			continue
		}
		ask := rollout.Unit{Node: n.Name, State: line.State}
		if own == nil {
			ask.Rank = max(1, rollout.Rank(n.UID, u.plan.UID, u.plan.Status.LatestHash))
		}
		asked = append(asked, ask)
		fleet[n.Name] = rollout.Node{Claims: f.claims}
		if f.err != nil {
			fleet[n.Name] = rollout.Node{ClaimError: f.err.Error()}
		}
	}
	u.explain(asked, fleet, told)
}

// judge tells a unit's state from its node's claim and label.
func (u *units) judge(f *fact, own *v1alpha1.Claim, value string, told map[string]entry) Node {
	line := Node{Node: f.node.Name, State: v1alpha1.UnitOutdated, NotReady: !f.ready, Cordoned: f.node.Spec.Unschedulable}
	status := told[f.node.Name]
	if own != nil {
		line.Started = &own.Since
	}
	switch {
	case own == nil && value != "" && value == u.plan.Status.LatestHash:
		line.State = v1alpha1.UnitUpdated
	case own == nil:
	case own.Failed != nil && status.state == v1alpha1.UnitOutdated:
		// It failed, the Plan has changed since, and it waits for another turn.
	case own.Failed != nil:
		line.State, line.Since = v1alpha1.UnitFailed, &own.Failed.Time
		line.Reason, line.Message = own.Failed.Reason, own.Failed.Message
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

// explain says of each unit that waits why, and puts them in the order in which they come. What the status says comes
// first: its controller knows more than is to be seen here.
func (u *units) explain(asked []rollout.Unit, fleet rollout.Fleet, told map[string]entry) {
	type wait struct {
		rollout.Wait
		place int
	}
	waits := map[string]wait{}
	if ready(u.plan) {
		for i, w := range rollout.Decide(u.strategy(len(asked)), asked, fleet, u.now).Waiting {
			waits[w.Node] = wait{w, len(told) + i}
		}
	}
	for name, e := range told {
		if e.state == v1alpha1.UnitOutdated {
			waits[name] = wait{rollout.Wait{Node: name, Reason: e.Reason, Message: e.Message}, e.place}
		}
	}
	for i := range u.nodes {
		if n := &u.nodes[i]; n.State == v1alpha1.UnitOutdated {
			n.Reason, n.Message = waits[n.Node].Reason, waits[n.Node].Message
		}
	}
	// Those about to start have no place among those that wait, and so come first.
	slices.SortStableFunc(u.nodes, func(a, b Node) int {
		return cmp.Compare(waits[a.Node].place, waits[b.Node].place)
	})
}

// strategy is the Plan's, as its controller reads it.
func (u *units) strategy(nodes int) rollout.Strategy {
	p := u.plan
	s := rollout.Strategy{
		UID:           p.UID,
		Shared:        !p.Spec.Exclusive && !p.Spec.Cordon && p.Spec.Drain == nil,
		MaxConcurrent: int(min(p.Spec.Concurrency, int64(nodes))),
	}
	if w := p.Spec.Window; w != nil {
		days := make([]string, len(w.Days))
		for i, day := range w.Days {
			days[i] = string(day)
		}
		var err error
		if s.Window, err = rollout.NewWindow(days, w.StartTime, w.EndTime, w.TimeZone); err != nil {
			s.WindowError = err.Error()
		}
	}
	return s
}

// selector is the Plan's, or one that selects nothing while the Plan is not valid and resolved.
func (u *units) selector() labels.Selector {
	if selector, err := metav1.LabelSelectorAsSelector(u.plan.Spec.NodeSelector); err == nil && ready(u.plan) {
		return selector
	}
	return labels.Nothing()
}

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
	s := &u.plan.Status
	all := make(map[string]entry, len(s.Updating)+len(s.Waiting))
	for i, w := range s.Waiting {
		all[w.Node] = entry{w, v1alpha1.UnitOutdated, 1 + i}
	}
	for _, t := range s.Updating {
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

// counts sums up the units by state.
func (u *units) counts() v1alpha1.UnitCounts {
	c := v1alpha1.UnitCounts{Total: int32(min(len(u.nodes), math.MaxInt32))}
	for i := range u.nodes {
		switch u.nodes[i].State {
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

// sorted puts the units in the order in which people want to see them. Those that wait keep theirs.
func (u *units) sorted() []Node {
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
	slices.SortStableFunc(u.nodes, func(a, b Node) int {
		if c := cmp.Compare(rank(&a), rank(&b)); c != 0 || a.State == v1alpha1.UnitOutdated {
			return c
		}
		return cmp.Or(began(&a).Compare(began(&b)), cmp.Compare(a.Node, b.Node))
	})
	return u.nodes
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
