// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/daemon"
	"moult.dev/moult/internal/rollout"
)

// set brings a condition up to date. One that is False is not made where there is none, unless it is one of kstatus's. Times
// move only with what the condition says.
func set(conditions *[]edsv1.Condition, kind string, is bool, reason, message string, now time.Time) {
	status := metav1.ConditionFalse
	if is {
		status = metav1.ConditionTrue
	}
	old := edsv1.FindCondition(*conditions, kind)
	switch {
	case old == nil && !is && kind != edsv1.ConditionReady && kind != edsv1.ConditionReconciling && kind != edsv1.ConditionStalled:
		return
	case old == nil:
		*conditions = append(*conditions, edsv1.Condition{Type: kind})
		old = &(*conditions)[len(*conditions)-1]
	case old.Status == status && old.Reason == reason && old.Message == message:
		return
	}
	at := metav1.NewTime(now.Truncate(time.Second))
	if old.Status != status {
		old.LastTransitionTime = at
	}
	old.Status, old.Reason, old.Message, old.LastUpdateTime = status, reason, message, at
}

// happens brings a condition up to date that tells of something that happens again and again: it has happened now.
func happens(conditions *[]edsv1.Condition, kind, message string, now time.Time) {
	set(conditions, kind, true, "", message, now)
	edsv1.FindCondition(*conditions, kind).LastUpdateTime = metav1.NewTime(now.Truncate(time.Second))
}

// statusOf is the status of a revision as it is now.
func (p *pass) statusOf(r *revision) edsv1.ExtendedDaemonSetReplicaSetStatus {
	s := *r.set.Status.DeepCopy()
	s.Desired, s.Current, s.Ready, s.Available = int32(r.desired), int32(r.current), int32(r.ready), int32(r.available)
	s.IgnoredUnresponsiveNodes = int32(r.ignored)
	active, canary := r.set == p.active, r.set == p.target && p.canary != nil
	lost := r.set == p.target && r.set != p.active && failed(r.set)
	switch {
	case active:
		s.Status = edsv1.ReplicaSetActive
	case canary:
		s.Status = edsv1.ReplicaSetCanary
	case lost:
		s.Status = edsv1.ReplicaSetCanaryFailed
	default:
		s.Status = edsv1.ReplicaSetUnknown
	}
	conditions := &s.Conditions
	set(conditions, edsv1.ConditionActive, active, "", "", p.now)
	reason, message := p.shortage(canary)
	set(conditions, edsv1.ConditionCanary, canary, reason, message, p.now)
	set(conditions, edsv1.ConditionRollingUpdatePaused, active && (p.is(edsv1.AnnotationRollingUpdatePaused) || p.strategy.Paused), "", "", p.now)
	set(conditions, edsv1.ConditionRolloutFrozen, active && p.is(edsv1.AnnotationRolloutFrozen), "", "", p.now)
	if active || canary {
		p.describePods(conditions, canary)
	} else {
		// Nobody looks at its pods any more.
		set(conditions, edsv1.ConditionUnschedule, false, "", "", p.now)
		set(conditions, edsv1.ConditionReconcileError, false, "", "", p.now)
	}
	if canary {
		v := p.canary.verdict
		set(conditions, edsv1.ConditionCanaryPaused, p.canary.paused(), string(p.pausedReason()), p.pausedMessage(), p.now)
		set(conditions, edsv1.ConditionPodCannotStart, v.CannotStart != "", string(v.CannotStart), v.CannotStartMessage, p.now)
		if !v.FirstRestart.IsZero() {
			restarting(conditions, v)
		}
	} else {
		set(conditions, edsv1.ConditionCanaryPaused, false, "", "", p.now)
		set(conditions, edsv1.ConditionPodCannotStart, false, "", "", p.now)
	}
	if active {
		// Somebody has failed it in the moment in which it passed. It is what all nodes get, and is not to be refused when it comes back.
		set(conditions, edsv1.ConditionCanaryFailed, false, "", "", p.now)
		p.describeBatches(conditions)
	}
	return s
}

// shortage says that the canary runs on fewer nodes than it should.
func (p *pass) shortage(canary bool) (reason, message string) {
	if !canary || len(p.eds.Status.Canary.Nodes) >= p.canary.wanted {
		return "", ""
	}
	return "TooFewNodes", fmt.Sprintf("it runs on %d nodes, and should on %d: no other is ready, schedulable, unclaimed and fit", len(p.eds.Status.Canary.Nodes), p.canary.wanted)
}

// restarting keeps the first and the last restart of the canary's pods, as ExtendedDaemonSet does: in the transition and
// the update of the condition.
func restarting(conditions *[]edsv1.Condition, v daemon.Verdict) {
	c := edsv1.FindCondition(*conditions, edsv1.ConditionPodRestarting)
	if c == nil {
		*conditions = append(*conditions, edsv1.Condition{Type: edsv1.ConditionPodRestarting})
		c = &(*conditions)[len(*conditions)-1]
	}
	c.Status, c.Reason = metav1.ConditionTrue, string(v.Reason)
	c.LastTransitionTime, c.LastUpdateTime = metav1.NewTime(v.FirstRestart.Truncate(time.Second)), metav1.NewTime(v.LastRestart.Truncate(time.Second))
}

// describePods says which pods find no place.
func (p *pass) describePods(conditions *[]edsv1.Condition, canary bool) {
	var nodes []string
	for i := range p.spots {
		s := &p.spots[i]
		if s.canary != canary || s.fresh == nil || s.fresh.pod.Spec.NodeName != "" || s.fresh.look.Ready {
			continue
		}
		for _, c := range s.fresh.pod.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
				nodes = append(nodes, s.node.Name)
			}
		}
	}
	message := ""
	if len(nodes) > 0 {
		message = "nodes:" + strings.Join(first(nodes), ";")
	}
	set(conditions, edsv1.ConditionUnschedule, len(nodes) > 0, "", message, p.now)
	reason, problem := p.trouble()
	set(conditions, edsv1.ConditionReconcileError, problem != "", reason, problem, p.now)
}

// first bounds a list in a message.
func first(names []string) []string {
	if more := len(names) - v1alpha1.MaxListedUnits; more > 0 {
		return append(slices.Clone(names[:v1alpha1.MaxListedUnits]), fmt.Sprintf("and %d more", more))
	}
	return names
}

// reasonRefused is the condition's reason where the API server refuses a pod.
const reasonRefused = "PodRefused"

// refused says why, or "".
func (p *pass) refused() string { return p.refusals.why(p.key) }

// trouble is what the API server refuses, or what of the nodes can't be read.
func (p *pass) trouble() (reason, message string) {
	switch {
	case p.refused() != "":
		return reasonRefused, p.refused()
	case p.misread != "":
		return string(v1alpha1.ReasonStrategyInvalid), p.misread
	}
	var nodes []string
	for name := range p.unplaced {
		nodes = append(nodes, name)
	}
	if len(nodes) == 0 {
		return "", ""
	}
	slices.Sort(nodes)
	return "NodeAnnotationInvalid", "node " + nodes[0] + ": " + p.unplaced[nodes[0]]
}

// describeBatches says when pods were last made, replaced and cleaned up.
func (p *pass) describeBatches(conditions *[]edsv1.Condition) {
	b := p.reports.batchesOf(p.eds.UID)
	for kind, at := range map[string]time.Time{
		edsv1.ConditionPodCreation: b.created, edsv1.ConditionPodDeletion: b.replaced, edsv1.ConditionPodsCleanupDone: b.cleaned,
	} {
		if c := edsv1.FindCondition(*conditions, kind); !at.IsZero() && (c == nil || c.LastUpdateTime.Time.Before(at.Truncate(time.Second))) {
			happens(conditions, kind, "", at)
		}
	}
	slices.SortStableFunc(*conditions, func(a, b edsv1.Condition) int { return strings.Compare(a.Type, b.Type) })
}

func (p *pass) pausedReason() edsv1.StatusReason {
	switch {
	case !p.canary.paused():
		return ""
	case p.canary.verdict.Paused:
		return p.canary.verdict.Reason
	}
	if reason := p.eds.Annotations[edsv1.AnnotationCanaryPausedReason]; reason != "" {
		return edsv1.StatusReason(reason)
	}
	return edsv1.StatusReasonUnknown
}

func (p *pass) pausedMessage() string {
	if p.canary.paused() && p.canary.verdict.Paused {
		return p.canary.verdict.Message
	}
	return ""
}

// summarize makes the status of the ExtendedDaemonSet.
func (p *pass) summarize() {
	s := &p.eds.Status
	s.ObservedGeneration = p.eds.Generation
	if p.problem != nil {
		p.setHealth(s, p.problem.Error(), p.problemReason)
		set(&s.Conditions, edsv1.ConditionReconcileError, true, p.problemReason, p.problem.Error(), p.now)
		return
	}
	p.count(s)
	p.setState(s)
	s.Updating, s.Waiting = p.listUnits()
	reason, problem := p.trouble()
	set(&s.Conditions, edsv1.ConditionReconcileError, problem != "", reason, problem, p.now)
	switch {
	case p.lost():
		p.setHealth(s, p.failure(), edsv1.ReasonCanaryFailed)
	case p.decision.Halted != nil && p.busy() == 0:
		p.setHealth(s, p.decision.Halted.Message, string(v1alpha1.ReasonHalted))
	case p.misread != "" && len(p.decision.Waiting) > 0:
		p.setHealth(s, p.misread, string(v1alpha1.ReasonStrategyInvalid))
	default:
		p.setHealth(s, "", "")
	}
}

// count sums up the pods.
func (p *pass) count(s *edsv1.ExtendedDaemonSetStatus) {
	s.Desired, s.Current, s.Ready, s.Available, s.UpToDate, s.IgnoredUnresponsiveNodes = 0, 0, 0, 0, 0, int32(p.limits.ignored)
	for i := range p.spots {
		at := &p.spots[i]
		if at.belongs() {
			s.Desired++
		}
		for _, h := range []*held{at.fresh, at.old} {
			if h == nil || h == at.old && at.kept {
				continue
			}
			s.Current++
			if h.look.Ready {
				s.Ready++
			}
			if h.look.Available {
				s.Available++
			}
		}
		if at.fresh != nil && (p.canary == nil || at.canary) {
			s.UpToDate++
		}
	}
}

// lost reports whether the revision that is wanted has failed as a canary.
func (p *pass) lost() bool { return p.target != p.active && failed(p.target) }

// failure says which canary has failed, and why.
func (p *pass) failure() string {
	c := edsv1.FindCondition(p.target.Status.Conditions, edsv1.ConditionCanaryFailed)
	text := "canary failed with ers: " + p.target.Name
	if c.Reason != "" {
		text += ": " + c.Reason
	}
	if c.Message != "" {
		text += ": " + c.Message
	}
	return text
}

// busy is how many nodes are in a turn that nothing excuses.
func (p *pass) busy() int {
	n := 0
	for i := range p.sawUnits {
		if u := &p.sawUnits[i]; u.State == v1alpha1.UnitUpdating && !u.Excused {
			n++
		}
	}
	return n
}

// setState says in ExtendedDaemonSet's words what goes on.
func (p *pass) setState(s *edsv1.ExtendedDaemonSetStatus) {
	told := edsv1.IsConditionTrue(s.Conditions, edsv1.ConditionCanaryFailed)
	s.Reason = ""
	switch {
	case p.canary != nil && p.canary.paused():
		s.State, s.Reason = edsv1.StateCanaryPaused, p.pausedReason()
	case p.canary != nil:
		s.State = edsv1.StateCanary
	case p.lost() && (!told || s.State == edsv1.StateCanaryFailed && p.revisions[p.target.Name].pods > 0):
		// Until its pods are gone, and never again from then on, whatever happens on other nodes: the failure stays in the conditions.
		s.State = edsv1.StateCanaryFailed
		if c := edsv1.FindCondition(p.target.Status.Conditions, edsv1.ConditionCanaryFailed); c != nil {
			s.Reason = edsv1.StatusReason(c.Reason)
		}
		if !told {
			p.at(p.now.Add(statusInterval))
		}
	default:
		s.State = p.rolls()
	}
	paused, message := p.canary.paused(), ""
	if paused {
		message = "canary paused with ers: " + p.target.Name
	}
	set(&s.Conditions, edsv1.ConditionCanaryPaused, paused, string(s.Reason), message, p.now)
	if p.lost() {
		set(&s.Conditions, edsv1.ConditionCanaryFailed, true, edsv1.ReasonCanaryFailed, p.failure(), p.now)
	} else {
		set(&s.Conditions, edsv1.ConditionCanaryFailed, false, "", "", p.now)
	}
}

// rolls is the state where no canary goes on.
func (p *pass) rolls() edsv1.State {
	switch {
	case p.is(edsv1.AnnotationRolloutFrozen):
		return edsv1.StateRolloutFrozen
	case p.is(edsv1.AnnotationRollingUpdatePaused) || p.strategy.Paused:
		return edsv1.StateRollingUpdatePaused
	}
	return edsv1.StateRunning
}

// endCanary takes all out of the status that tells of a canary.
func (p *pass) endCanary() {
	s := &p.eds.Status
	s.Canary, s.Wave, s.State, s.Reason = nil, nil, p.rolls(), ""
	set(&s.Conditions, edsv1.ConditionCanaryPaused, false, "", "", p.now)
}

// setHealth sets the conditions of kstatus. What stalls is said with its reason.
func (p *pass) setHealth(s *edsv1.ExtendedDaemonSetStatus, stalled, reason string) {
	done := stalled == "" && p.canary == nil && s.UpToDate == s.Desired && s.Available >= s.Desired && s.Current == s.Desired
	set(&s.Conditions, edsv1.ConditionStalled, stalled != "", reason, stalled, p.now)
	progress := fmt.Sprintf("%d of %d pods are up to date, %d are available", s.UpToDate, s.Desired, s.Available)
	if p.canary != nil && p.decisionOfCanary() != "" {
		progress = p.decisionOfCanary()
	}
	switch {
	case done:
		set(&s.Conditions, edsv1.ConditionReconciling, false, "Complete", "", p.now)
		set(&s.Conditions, edsv1.ConditionReady, true, "Complete", fmt.Sprintf("all %d pods are up to date and available", s.Desired), p.now)
	case stalled != "":
		set(&s.Conditions, edsv1.ConditionReconciling, false, reason, "", p.now)
		set(&s.Conditions, edsv1.ConditionReady, false, reason, stalled, p.now)
	default:
		set(&s.Conditions, edsv1.ConditionReconciling, true, "Progressing", progress, p.now)
		set(&s.Conditions, edsv1.ConditionReady, false, "Progressing", progress, p.now)
	}
}

// decisionOfCanary says what the canary waits for.
func (p *pass) decisionOfCanary() string {
	if w := p.canary.decision.Wave; w != nil {
		return w.Message
	}
	return ""
}

// listUnits are the first nodes whose pods are being replaced, and the first that wait.
func (p *pass) listUnits() (updating, waiting []v1alpha1.UnitStatus) {
	for i := range p.sawUnits {
		u := &p.sawUnits[i]
		if len(updating) == v1alpha1.MaxListedUnits {
			break
		}
		if u.State != v1alpha1.UnitUpdating && u.State != v1alpha1.UnitSoaking && u.State != v1alpha1.UnitFailed {
			continue
		}
		updating = append(updating, v1alpha1.UnitStatus{Node: u.Node, Phase: phaseOf(u), Reason: u.Reason, Message: u.Message})
	}
	waits := p.decision.Waiting
	if p.canary != nil {
		waits = append(slices.Clone(p.canary.decision.Waiting), waits...)
	}
	seen := map[string]bool{}
	for i := range waits {
		if len(waiting) == v1alpha1.MaxListedUnits {
			break
		}
		if w := &waits[i]; !seen[w.Node] && !p.isFailed(w.Node) {
			seen[w.Node] = true
			waiting = append(waiting, v1alpha1.UnitStatus{Node: w.Node, Reason: w.Reason, Message: w.Message})
		}
	}
	return updating, waiting
}

func (p *pass) isFailed(node string) bool {
	return slices.ContainsFunc(p.sawUnits, func(u rollout.Unit) bool { return u.Node == node && u.State == v1alpha1.UnitFailed })
}

func phaseOf(u *rollout.Unit) v1alpha1.Phase {
	switch u.State {
	case v1alpha1.UnitSoaking:
		return v1alpha1.PhaseSoaking
	case v1alpha1.UnitFailed:
		return ""
	default:
		return v1alpha1.PhaseChanging
	}
}
