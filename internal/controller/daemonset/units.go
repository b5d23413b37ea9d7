// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"math"
	"slices"
	"time"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/daemon"
	"moult.dev/moult/internal/rollout"
)

// units are the nodes as the engine sees them, but for those of a canary that goes on. An outdated pod makes its node one that
// asks to be started; a node without an available pod of the active revision is in its turn.
func (p *pass) units() []rollout.Unit {
	units := make([]rollout.Unit, 0, len(p.spots))
	bears := p.ignores()
	soak := time.Duration(0)
	if p.strategy.Soak != nil {
		soak = p.strategy.Soak.Duration
	}
	for i := range p.spots {
		s := &p.spots[i]
		if s.canary || !s.belongs() && !s.going {
			continue
		}
		p.limits.nodes++
		u := rollout.Unit{Node: s.node.Name, State: s.state(), Rank: rollout.Rank(s.node.UID, p.eds.UID, hashOf(p.active))}
		switch u.State {
		case v1alpha1.UnitOutdated:
			u.Down = !s.old.available()
			u.Reason, u.Message = p.unfit(s)
			if bears(s) { // There may be no room for a new pod either, which would hold a slot until that is certain.
				u.Down, u.Rank = false, math.MaxUint64
				p.ignore(s)
			}
		case v1alpha1.UnitUpdated:
			u.Since = s.fresh.look.ReadySince
			if end := p.fleet.SoakEnd(s.node.Name, u.Since, soak); soak > 0 && p.now.Before(end) && p.updates() {
				u.State = v1alpha1.UnitSoaking
				p.at(end)
			}
		default:
			u.Excused = s.blamed != "" || bears(s)
			if why, ok := p.broken(s); ok && !u.Excused {
				u.State, u.Reason, u.Message = v1alpha1.UnitFailed, v1alpha1.ReasonPodFailed, why
			}
			if u.Excused {
				p.ignore(s)
			}
		}
		units = append(units, u)
	}
	return units
}

// ignore counts a node that lacks an available pod, and holds nobody up.
func (p *pass) ignore(s *spot) {
	p.limits.ignored++
	p.revisions[s.want.Name].ignored++
}

// unfit says why an outdated pod may not be replaced, whatever the strategy says.
func (p *pass) unfit(s *spot) (v1alpha1.Reason, string) {
	switch {
	case p.strategy.Type == edsv1.StrategyOnDelete && !p.left(s):
		return v1alpha1.ReasonOnDelete, "spec.strategy.type is OnDelete: the pod is replaced when somebody deletes it"
	case s.kept && portsConflict(&s.old.pod.Spec, &p.active.Spec.Template.Spec):
		return v1alpha1.ReasonNodeUnfit, "pod " + s.old.pod.Name + " has a port of the host that the new pod needs, and its DaemonSet would make it again: " +
			"delete the DaemonSet with --cascade=orphan"
	case !s.placement.Create:
		return v1alpha1.ReasonNodeUnfit, "no new pod would be made on the node: " + s.placement.Why
	case !s.refused.IsZero() && p.now.Before(s.refused.Add(refusedFor)):
		p.at(s.refused.Add(refusedFor))
		return v1alpha1.ReasonNodeUnfit, "the API server refuses the new pod"
	case s.blamed != "" && !s.claimed():
		return v1alpha1.ReasonNodeNotReady, s.blamed
	case p.canary != nil && ofSet(s.old.pod) != p.active.Name && !p.left(s):
		return v1alpha1.ReasonWavePending, "the canary of revision " + p.target.Name + " goes on: " + p.active.Name + " comes to no more nodes, as it may be what the template was taken from"
	}
	return "", ""
}

// claimed reports whether a rollout has the node: the engine says so itself.
func (s *spot) claimed() bool {
	for i := range s.known.Claims {
		if !s.known.Claims[i].Parked() {
			return true
		}
	}
	return false
}

// atWork reports whether a rollout's turn goes on there. One that has failed keeps its claim until somebody sees to it, and may
// have left a machine that never comes back.
func (s *spot) atWork() bool {
	return slices.ContainsFunc(s.known.Claims, func(c v1alpha1.Claim) bool { return c.Failed == nil })
}

// updates reports whether the node's pod was made in a rolling update: at the first rollout nobody waits for it to soak.
func (p *pass) updates() bool { return len(p.sets) > 1 || p.migrates }

// broken says why a new pod counts as failed, where the strategy limits failures.
func (p *pass) broken(s *spot) (string, bool) {
	if p.strategy.MaxFailures == nil || s.fresh == nil || s.excused(s.fresh) {
		return "", false
	}
	limit := int32(defaultRestarts)
	if c := p.strategy.Canary; c != nil && c.AutoFail != nil && c.AutoFail.MaxRestarts != nil {
		limit = *c.AutoFail.MaxRestarts
	}
	look := s.fresh.look
	switch {
	case look.CannotStart != "":
		return "pod " + s.fresh.pod.Name + " can't start: " + string(look.CannotStart) + ": " + look.Message, true
	case look.Restarts > limit:
		return "pod " + s.fresh.pod.Name + " restarts again and again: " + string(look.RestartReason), true
	}
	return "", false
}

// defaultRestarts is how often a pod may restart in a rolling update without a canary.
const defaultRestarts = 5

// ignores says of which nodes a pod that does not get anywhere is not counted, as far as maxPodSchedulerFailure goes.
func (p *pass) ignores() func(*spot) bool {
	left := daemon.Count(p.strategy.RollingUpdate.MaxPodSchedulerFailure, p.eligible())
	return func(s *spot) bool {
		pod := s.fresh
		if pod == nil {
			pod = s.old
		}
		if left <= 0 || !s.stuck && (pod == nil || !pod.look.Unresponsive) {
			return false
		}
		left--
		return true
	}
}

// eligible is how many nodes the rolling update goes over.
func (p *pass) eligible() int {
	n := 0
	for i := range p.spots {
		if s := &p.spots[i]; !s.canary && s.belongs() {
			n++
		}
	}
	return n
}
