// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"math"
	"slices"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/rollout"
)

// leftovers are pods of a canary that is over and was not promoted, as the engine sees them.
type leftovers struct {
	nodes    map[string]bool
	strategy rollout.Strategy
	units    []rollout.Unit
}

// findLeftovers finds them; nil without any. They are replaced before all others, and without regard to waves, windows, failures and
// budgets. None of these delayed the canary, and what it broke must not stay broken until they allow others. Slots and pauses
// count.
func (j *Judge) findLeftovers() *leftovers {
	l := leftovers{nodes: map[string]bool{}, strategy: j.Rolling, units: slices.Clone(j.Units)}
	for i := range j.States {
		if s := &j.States[i]; !s.Canary && s.Outdated != nil && !s.Kept && j.isLeftover(s) {
			l.nodes[s.Node.Name] = true
		}
	}
	if len(l.nodes) == 0 {
		return nil
	}
	for i := range l.units {
		if u := &l.units[i]; u.State == v1alpha1.UnitOutdated && !l.nodes[u.Node] {
			u.Reason = v1alpha1.ReasonWavePending // It is decided with the others.
		}
	}
	s := &l.strategy
	s.Waves, s.Wave, s.Windows, s.WindowError, s.Error = nil, nil, nil, "", ""
	if s.MaxFailures != nil {
		most := math.MaxInt // Failed units release their slots, and halt nothing.
		s.MaxFailures = &most
	}
	return &l
}

// isLeftover reports whether the outdated pod is of a revision that was a canary, and was never active.
func (j *Judge) isLeftover(s *NodeState) bool {
	rs := j.Find(ReplicaSetOf(s.Outdated.Pod))
	if rs == nil || rs == j.Active {
		return false
	}
	conditions := rs.Status.Conditions
	tried := edsv1.FindCondition(conditions, edsv1.ConditionCanary) != nil && edsv1.FindCondition(conditions, edsv1.ConditionActive) == nil
	return tried || HasFailed(rs)
}

// decideRollingUpdate decides which outdated pods are replaced now, leftovers of a canary first.
func (j *Judge) decideRollingUpdate() {
	units := j.Units
	var first rollout.Decision
	if l := j.findLeftovers(); l != nil {
		j.leftovers = l
		first = rollout.Decide(l.strategy, l.units, rollout.Fleet{Nodes: j.Fleet.Nodes}, j.Now)
		first.Waiting = slices.DeleteFunc(first.Waiting, func(w rollout.Wait) bool { return !l.nodes[w.Node] })
		units = slices.Clone(units)
		for i := range units {
			if slices.Contains(first.Start, units[i].Node) {
				units[i].State = v1alpha1.UnitUpdating
			}
		}
		j.WakeAt(first.Next)
	}
	j.Decision = rollout.Decide(j.Rolling, units, j.Fleet, j.Now)
	j.Decision.Start = slices.Concat(first.Start, j.Decision.Start)
	if j.leftovers != nil {
		j.Decision.Waiting = slices.Concat(first.Waiting, slices.DeleteFunc(j.Decision.Waiting, func(w rollout.Wait) bool {
			return j.leftovers.nodes[w.Node]
		}))
	}
	j.WakeAt(j.Decision.Next)
}

// Explain says what every check of the engine says of a node.
func (j *Judge) Explain(node string) rollout.Explanation {
	if l := j.leftovers; l != nil && l.nodes[node] {
		return rollout.Explain(l.strategy, l.units, rollout.Fleet{Nodes: j.Fleet.Nodes}, j.Now, node)
	}
	return rollout.Explain(j.Rolling, j.Units, j.Fleet, j.Now, node)
}
