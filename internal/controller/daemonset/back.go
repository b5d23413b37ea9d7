// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"math"
	"slices"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/rollout"
)

// sendBack decides which pods go that are left from a canary that is over and has not passed: before all others, and without
// regard to waves, windows and budgets. None of these held up the canary, and what it has broken is not to stay broken until they
// let others go. Slots do count, and so do pauses. The units of those that go are in their turn from then on.
func (p *pass) sendBack(s rollout.Strategy, units []rollout.Unit) rollout.Decision {
	left := map[string]bool{}
	for i := range p.spots {
		if at := &p.spots[i]; !at.canary && at.old != nil && !at.kept && p.left(at) {
			left[at.node.Name] = true
		}
	}
	if len(left) == 0 {
		return rollout.Decision{}
	}
	asked := slices.Clone(units)
	for i := range asked {
		if u := &asked[i]; u.State == v1alpha1.UnitOutdated && !left[u.Node] {
			u.Reason = v1alpha1.ReasonWavePending // It is not asked about here.
		}
	}
	s.Waves, s.Wave, s.Windows, s.WindowError, s.Error = nil, nil, nil, "", ""
	if s.MaxFailures != nil {
		most := math.MaxInt // They give up their slots as ever, and halt nothing.
		s.MaxFailures = &most
	}
	d := rollout.Decide(s, asked, rollout.Fleet{Nodes: p.fleet.Nodes}, p.now)
	d.Waiting = slices.DeleteFunc(d.Waiting, func(w rollout.Wait) bool { return !left[w.Node] })
	for i := range units {
		if slices.Contains(d.Start, units[i].Node) {
			units[i].State = v1alpha1.UnitUpdating
		}
	}
	p.at(d.Next)
	return d
}

// join puts what was decided of such pods before what was decided of the others.
func join(back, others rollout.Decision) rollout.Decision {
	if len(back.Start) == 0 && len(back.Waiting) == 0 {
		return others
	}
	others.Start = slices.Concat(back.Start, others.Start)
	others.Waiting = slices.Concat(back.Waiting, slices.DeleteFunc(others.Waiting, func(w rollout.Wait) bool {
		return slices.ContainsFunc(back.Waiting, func(b rollout.Wait) bool { return b.Node == w.Node })
	}))
	return others
}

// left reports whether the outdated pod is of a revision that was tried, and has never been active.
func (p *pass) left(s *spot) bool {
	r := p.revisions[ofSet(s.old.pod)]
	if r == nil || r.set == p.active {
		return false
	}
	conditions := r.set.Status.Conditions
	tried := edsv1.FindCondition(conditions, edsv1.ConditionCanary) != nil && edsv1.FindCondition(conditions, edsv1.ConditionActive) == nil
	return tried || failed(r.set)
}
