// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/daemon"
	"moult.dev/moult/internal/rollout"
)

// limits are how many pods may be replaced and created now.
type limits struct {
	// nodes that the rolling update goes over, and ignored those of them that are not counted as unavailable.
	nodes, ignored int
	// creation is how many pods may be in creation, creating how many are, and missing on how many nodes one is still to be made.
	creation, creating, missing int
	// grows is when creation does; zero: never.
	grows time.Time
}

// actions are what a pass does to pods, in this order.
type actions struct {
	// extra are deleted whatever happens, done because another has taken their place, and next to be replaced.
	extra, done, next []*corev1.Pod
	// label and unlabel are pods that begin or cease to be canaries.
	label, unlabel []*corev1.Pod
	// excuse are pods whose restarts up to now are their nodes' doing.
	excuse []*corev1.Pod
	// create are the nodes that get a pod.
	create []*spot
}

// decide finds out what is to be done. Pods are made where there is none, as fast as the slow start allows; the engine says
// whose outdated pod goes next.
func (p *pass) decide() {
	began := p.clock.Now()
	defer func() { p.cost += p.clock.Since(began) }()
	p.plan.extra = p.orphans
	turns := p.inTurn()
	units := p.units()
	p.sawUnits = units
	frozen := p.is(edsv1.AnnotationRolloutFrozen)
	p.limitCreation()
	for _, s := range turns {
		p.plan.extra = append(p.plan.extra, s.extra...)
		switch {
		case s.canary:
			p.tend(s)
		case s.fresh.available() && s.old != nil && !s.kept:
			p.plan.done = append(p.plan.done, s.old.pod)
		case s.empty() && s.placement.Create && !frozen && p.mayCreate():
			p.plan.create = append(p.plan.create, s)
		case s.placement.Create && s.fresh == nil && s.old == nil && s.promised.IsZero() && !s.hindered():
			p.limits.missing++
		}
		p.relabel(s)
		p.excuse(s)
	}
	strategy := p.rolling(units, frozen)
	p.misread = strategy.Problem()
	back := p.sendBack(strategy, units)
	p.decision = join(back, rollout.Decide(strategy, units, p.fleet.Fleet, p.now))
	p.at(p.decision.Next)
	if p.canary == nil {
		p.eds.Status.Wave = p.decision.Wave
	}
	p.queued.Set(p.key, len(p.decision.Waiting) > 0 || p.canary != nil)
	p.replace()
}

// empty reports whether nothing is on the node, and nothing is on its way there or in the way.
func (s *spot) empty() bool {
	return s.fresh == nil && s.old == nil && !s.going && !s.ended && s.promised.IsZero() && len(s.extra) == 0
}

// hindered reports whether something else than the slow start keeps a pod from being made on the node: others need not wait for
// its turn in the slow start.
func (s *spot) hindered() bool { return s.stuck || s.ended || s.blamed != "" || !s.refused.IsZero() }

// tend is what is done on a node of the canary: an outdated pod goes at once, and the new one is made at once; with maxSurge it
// is made beside the old one, which goes when it is available. An old pod stays, and alone, while its node is not ready, or in other
// hands: a node without a pod is the only one that gets one then.
func (p *pass) tend(s *spot) {
	may := s.fresh == nil && s.placement.Create && !p.canary.paused()
	replaces := may && s.blamed == ""
	switch {
	case may && s.empty(), replaces && s.kept && s.promised.IsZero():
		p.plan.create = append(p.plan.create, s)
	case s.old == nil || s.kept:
	case replaces && p.surges() && !portsConflict(&s.old.pod.Spec, &p.target.Spec.Template.Spec):
		if s.promised.IsZero() && !s.going {
			p.plan.create = append(p.plan.create, s)
		}
	case replaces:
		p.plan.next = append(p.plan.next, s.old.pod)
	case s.fresh.available():
		p.plan.done = append(p.plan.done, s.old.pod)
	}
}

// relabel keeps the canary's label where it belongs.
func (p *pass) relabel(s *spot) {
	for _, h := range []*held{s.fresh, s.old} {
		if h == nil || h.look.Terminating {
			continue
		}
		is := h.pod.Labels[edsv1.LabelReplicaSetCanary] == edsv1.True
		switch should := s.canary && h == s.fresh; {
		case should && !is:
			p.plan.label = append(p.plan.label, h.pod)
		case !should && is:
			p.plan.unlabel = append(p.plan.unlabel, h.pod)
		}
	}
}

// excuse notes that the restarts of a pod up to now are its node's doing, where they would count later: the node comes back, or is given
// back, and nothing tells these restarts from others any more.
func (p *pass) excuse(s *spot) {
	counts := s.canary || p.strategy.MaxFailures != nil
	if counts && s.fresh != nil && !s.fresh.look.Terminating && s.excused(s.fresh) && daemon.Excuse(s.fresh.pod) != "" {
		p.plan.excuse = append(p.plan.excuse, s.fresh.pod)
	}
}

// rolling is the strategy of the rolling update.
func (p *pass) rolling(units []rollout.Unit, frozen bool) rollout.Strategy {
	from := p.strategy
	atOnce := daemon.Count(from.RollingUpdate.MaxUnavailable, p.limits.nodes)
	if p.surges() {
		atOnce = daemon.Count(from.RollingUpdate.MaxSurge, p.limits.nodes)
	}
	s := rollout.New(&v1alpha1.Strategy{
		Order: from.Order, Waves: from.Waves, MaxFailures: from.MaxFailures, Windows: from.Windows,
		Paused: from.Paused || frozen || p.is(edsv1.AnnotationRollingUpdatePaused),
	}, atOnce, len(units))
	s.UID, s.Revision, s.Beside = p.eds.UID, hashOf(p.active), true
	s.Approved = p.eds.Annotations[v1alpha1.AnnotationApprove]
	if p.canary == nil {
		s.Wave = p.eds.Status.Wave
	}
	return s
}

// creationTime is how long a pod that is not ready counts as being in creation, unless reconcileFrequency says otherwise:
// ExtendedDaemonSet creates so many in each such interval.
const creationTime = 10 * time.Second

// limitCreation finds out how many pods may be made now.
func (p *pass) limitCreation() {
	long := creationTime
	if f := p.strategy.ReconcileFrequency; f != nil && f.Duration > 0 {
		long = f.Duration
	}
	p.limits.creation, p.limits.grows = daemon.CreationLimit(&p.strategy.RollingUpdate, p.slowStart(), p.now, max(1, p.eligible()))
	for i := range p.spots {
		s := &p.spots[i]
		if s.canary {
			continue
		}
		since := s.promised
		if s.fresh != nil && !s.fresh.look.Ready {
			since = s.fresh.pod.CreationTimestamp.Time
		}
		if end := since.Add(long); !since.IsZero() && p.now.Before(end) {
			p.limits.creating++
			p.at(end)
		}
	}
	if p.limits.creating >= p.limits.creation {
		p.at(p.limits.grows)
	}
}

// slowStart is when the slow start began: when the revision became active, or a pause was over.
func (p *pass) slowStart() time.Time {
	since := p.now
	conditions := p.active.Status.Conditions
	if c := edsv1.FindCondition(conditions, edsv1.ConditionActive); c != nil && c.Status == metav1.ConditionTrue {
		since = c.LastTransitionTime.Time
	}
	for _, kind := range []string{edsv1.ConditionRolloutFrozen, edsv1.ConditionRollingUpdatePaused} {
		if c := edsv1.FindCondition(conditions, kind); c != nil && c.LastTransitionTime.After(since) {
			since = c.LastTransitionTime.Time
		}
	}
	return since
}

// mayCreate takes one of the creations that are allowed.
func (p *pass) mayCreate() bool {
	if p.limits.creating >= p.limits.creation {
		return false
	}
	p.limits.creating++
	return true
}

// replace turns the engine's answer into what is done. Deletions do not outrun creations: a node would be without a pod for
// nothing. And they come no more often than reconcileFrequency, where that is set.
func (p *pass) replace() {
	if len(p.decision.Start) == 0 {
		return
	}
	hold := func(from int, reason v1alpha1.Reason, message string) {
		held := make([]rollout.Wait, 0, len(p.decision.Start)-from+len(p.decision.Waiting))
		for _, name := range p.decision.Start[from:] {
			held = append(held, rollout.Wait{Node: name, Reason: reason, Message: message})
		}
		p.decision.Waiting = append(held, p.decision.Waiting...) // They would go first.
		p.decision.Start = p.decision.Start[:from]
	}
	if next := p.nextBatch(); p.now.Before(next) {
		hold(0, v1alpha1.ReasonSlowStart, fmt.Sprintf("spec.strategy.reconcileFrequency is %s: the next pods are replaced at %s",
			p.strategy.ReconcileFrequency.Duration, next.UTC().Format(time.RFC3339)))
		p.at(next)
		return
	}
	byNode := make(map[string]*spot, len(p.decision.Start))
	for _, name := range p.decision.Start {
		byNode[name] = nil
	}
	for i := range p.spots {
		if s := &p.spots[i]; s.state() == v1alpha1.UnitOutdated {
			if _, starts := byNode[s.node.Name]; starts {
				byNode[s.node.Name] = s
			}
		}
	}
	room := max(0, p.limits.creation-p.limits.creating-p.limits.missing)
	if room < len(p.decision.Start) {
		p.at(p.limits.grows)
		hold(room, v1alpha1.ReasonSlowStart, fmt.Sprintf("%d pods are in creation or missing, and the slow start allows %d now", p.limits.creating+p.limits.missing, p.limits.creation))
	}
	for _, name := range p.decision.Start {
		switch s := byNode[name]; {
		case s.kept, p.surges() && !portsConflict(&s.old.pod.Spec, &p.active.Spec.Template.Spec):
			p.plan.create = append(p.plan.create, s)
		default:
			p.plan.next = append(p.plan.next, s.old.pod)
		}
	}
}

// nextBatch is when outdated pods may be replaced again.
func (p *pass) nextBatch() time.Time {
	f := p.strategy.ReconcileFrequency
	if f == nil || f.Duration <= 0 {
		return time.Time{}
	}
	last := p.reports.lastBatch(p.eds.UID)
	if c := edsv1.FindCondition(p.active.Status.Conditions, edsv1.ConditionPodDeletion); c != nil && c.LastUpdateTime.After(last) {
		last = c.LastUpdateTime.Time
	}
	if last.IsZero() {
		return last
	}
	return last.Add(f.Duration)
}
