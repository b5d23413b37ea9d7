// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/kind/plan"
	"moult.dev/moult/internal/rollout"
)

// unnoticed is how old a rollout or budget may be without a status before a message says so.
const unnoticed = 10 * time.Second

// Rollouts returns all rollouts, sorted by namespace and name. NodeRollouts have no namespace and come first.
// A Plan comes before an ExtendedDaemonSet of the same name.
func (c *Cluster) Rollouts() []Rollout {
	rollouts := make([]Rollout, 0, len(c.plans)+len(c.daemons.Sets)+len(c.nodeRollouts))
	for i := range c.plans {
		rollouts = append(rollouts, c.plan(&c.plans[i]))
	}
	for i := range c.daemons.Sets {
		rollouts = append(rollouts, c.daemonSet(&c.daemons.Sets[i]).rollout())
	}
	for i := range c.nodeRollouts {
		rollouts = append(rollouts, c.nodeRollout(&c.nodeRollouts[i]))
	}
	slices.SortFunc(rollouts, func(a, b Rollout) int { return a.compare(&b) })
	return rollouts
}

// compare orders rollouts.
func (r *Rollout) compare(other *Rollout) int {
	return cmp.Or(cmp.Compare(r.Namespace, other.Namespace), cmp.Compare(r.Name, other.Name), cmp.Compare(other.Kind, r.Kind))
}

func (c *Cluster) plan(p *upgradev1.Plan) Rollout {
	if c.facts == nil {
		r := describe(p)
		r.Nodes = sorted(listed(p.Status.Failed, p.Status.Updating, p.Status.Waiting))
		r.State, r.Message, r.Since = state(p, r.Counts, c.now)
		return r
	}
	return c.observe(p, "", false).rollout()
}

// describe takes the Plan's own spec and status.
func describe(p *upgradev1.Plan) Rollout {
	r := Rollout{
		Kind: "Plan", Namespace: p.Namespace, Name: p.Name, Version: p.Status.LatestVersion, Revision: p.Status.LatestHash,
		Wave: p.Status.Wave, TurnSeconds: p.Status.TurnSeconds, Paused: p.Spec.Strategy != nil && p.Spec.Strategy.Paused,
	}
	if p.Status.Counts != nil {
		r.Counts = *p.Status.Counts
	}
	return r
}

// planUnits are the units of one Plan.
type planUnits struct {
	units
	cluster *Cluster
	world   *plan.World
	// invalid is the error in the spec.
	invalid error
}

// observe judges every node that the Plan selects or claims, like its controller but without its Jobs, and asks the engine.
// With assumed, the Plan counts as valid and resolved, whatever its status says.
func (c *Cluster) observe(p *upgradev1.Plan, named string, assumed bool) *planUnits {
	u := &planUnits{cluster: c}
	u.world, u.invalid = plan.NewWorld(p)
	u.world.Ready, u.world.Fleet, u.world.OwnNode, u.world.Now = assumed || ready(p), c.fleet, c.ownNode, c.now
	u.world.SharedHostnames = map[string]bool{}
	for hostname, n := range c.hosts {
		u.world.SharedHostnames[hostname] = n > 1
	}
	turns := u.world.Units(c.objects(), nil, nil)
	strategy := func(total int) rollout.Strategy { return u.world.Strategy(total, p.Status.Wave) }
	u.units = decide(c, turns, named, recordedIn(p), u.world.Ready, strategy, u.line)
	return u
}

// recordedIn returns the units in the Plan's status, by node.
func recordedIn(p *upgradev1.Plan) map[string]entry {
	recorded := entries(p.Status.Updating, p.Status.Waiting)
	for _, f := range p.Status.Failed {
		recorded[f.Node] = entry{f, v1alpha1.UnitFailed, 0}
	}
	return recorded
}

// line shows a unit. The status adds what only the Job shows, if the status is of this turn.
func (u *planUnits) line(t *plan.Unit, wait *rollout.Wait, status entry) Node {
	phase, since, message := t.Phase(u.cluster.now)
	ofTurn := t.Claim != nil && status.Since != nil && status.Since.Unix() >= t.Claim.Since.Unix()
	fromStatus := ofTurn && phase == v1alpha1.PhaseClaimed && status.Phase != ""
	if fromStatus {
		phase, since = status.Phase, status.Since.Time
	}
	line := u.cluster.line(t.Base(), wait, phase, since, message)
	if fromStatus && line.Phase != "" || ofTurn && line.State == v1alpha1.UnitFailed && status.state == v1alpha1.UnitFailed {
		line.Reason, line.Message = status.Reason, status.Message
	}
	return line
}

// rollout summarizes the units.
func (u *planUnits) rollout() Rollout {
	r := describe(u.world.Plan)
	u.sumUp(u.cluster, &r)
	r.State, r.Message, r.Since = state(u.world.Plan, r.Counts, u.cluster.now)
	return r
}

// ready reports whether the Plan's controller has found it valid and resolved.
func ready(p *upgradev1.Plan) bool {
	c := p.Status.Condition(upgradev1.ConditionComplete)
	return c != nil && c.Reason != upgradev1.ReasonNotReady
}

// state is a Plan's state, by its conditions.
func state(p *upgradev1.Plan, c v1alpha1.UnitCounts, now time.Time) (State, string, *metav1.Time) {
	s := &p.Status
	complete, stalled := s.Condition(upgradev1.ConditionComplete), s.Condition(upgradev1.ConditionStalled)
	switch {
	case complete == nil && now.Sub(p.CreationTimestamp.Time) < unnoticed:
		return Pending, "", nil
	case complete == nil:
		return Pending, "no controller has looked at it: does one run, and for namespace " + p.Namespace + "?", nil
	case s.ObservedGeneration != 0 && s.ObservedGeneration != p.Generation:
		return Pending, "the controller has not looked at its latest change yet", nil
	case stalled != nil && stalled.Status == metav1.ConditionTrue:
		return Stalled, cmp.Or(complaint(s), stalled.Message), transition(stalled)
	case complete.Status == metav1.ConditionTrue && c.Updating == 0: // Else the Nodes were read before the Plan.
		return Complete, note(s), transition(complete)
	case c.Updating > 0 || complete.Reason == upgradev1.ReasonSyncJob || complete.Reason == upgradev1.ReasonResolved:
		return Progressing, cmp.Or(complete.Message, note(s)), transition(complete)
	default:
		return Waiting, cmp.Or(complaint(s), complete.Message, note(s)), transition(complete)
	}
}

// complaint says why a Plan is not valid or not resolved, or what has failed.
func complaint(s *upgradev1.PlanStatus) string {
	for _, kind := range []string{upgradev1.ConditionValidated, upgradev1.ConditionLatestResolved} {
		if c := s.Condition(kind); c != nil && c.Status != metav1.ConditionTrue {
			return c.Message
		}
	}
	if c := s.Condition(upgradev1.ConditionComplete); c != nil && c.Reason == upgradev1.ReasonJobFailed {
		return c.Message
	}
	return ""
}

// note says what else there is to know, such as why a newer version is not taken.
func note(s *upgradev1.PlanStatus) string {
	if c := s.Condition(upgradev1.ConditionLatestResolved); c != nil && c.Status == metav1.ConditionTrue {
		return c.Message
	}
	return ""
}

func transition(c *upgradev1.Condition) *metav1.Time {
	at, err := time.Parse(time.RFC3339, c.LastTransitionTime)
	if err != nil {
		return nil
	}
	return &metav1.Time{Time: at}
}
