// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/rollout"
)

// Canary is the state of a canary.
type Canary struct {
	// PausedByHand is true when the annotation pauses it.
	PausedByHand bool
	// Wanted is how many nodes the canary should run on.
	Wanted  int
	Verdict Verdict
	// Strategy, Units and Decision are those of the engine. Every node outside of the canary is among those that wait.
	Strategy rollout.Strategy
	Units    []rollout.Unit
	Decision rollout.Decision
	// Held are the nodes of the canary that may not start, and why: a budget does not allow it, or another rollout has claimed the node.
	Held []rollout.Wait
	// Until is the earliest promotion: then the pods have been ready, and without a restart, for long enough.
	Until time.Time
	// Over is true when the canary has passed and must be promoted.
	Over bool
}

// Paused reports whether the canary is paused, by hand or by autoPause.
func (c *Canary) Paused() bool { return c != nil && (c.PausedByHand || c.Verdict.Paused) }

// WaitOf says why a node of the canary may not start. The Reason is "" if it may, or has started.
func (c *Canary) WaitOf(node string) rollout.Wait {
	if c == nil {
		return rollout.Wait{}
	}
	return ptr.Deref(rollout.Find(c.Held, func(w *rollout.Wait) bool { return w.Node == node }), rollout.Wait{})
}

// CanaryWanted reports whether a canary runs or should begin: the target revision is not active, and has not failed.
func (j *Judge) CanaryWanted() bool {
	return j.Target != j.Active && j.Strategy.Canary != nil && !HasFailed(j.Target)
}

// CanaryFailed reports whether the target revision has failed as a canary.
func (j *Judge) CanaryFailed() bool { return j.Target != j.Active && HasFailed(j.Target) }

// StartCanary begins to decide about the canary, and returns the nodes that it should run on.
func (j *Judge) StartCanary() []string {
	replicas := Count(j.Strategy.Canary.Replicas, int(j.total().Desired))
	j.Canary = &Canary{PausedByHand: j.Annotated(edsv1.AnnotationCanaryPaused), Wanted: max(1, replicas)}
	before := ptr.Deref(j.EDS.Status.Canary, edsv1.ExtendedDaemonSetStatusCanary{}).Nodes
	j.findFits()
	j.findHeld()
	return PickCanaries(j.Strategy.Canary, j.Canary.Wanted, before, j.States)
}

// findFits finds on which nodes a pod of the target revision can run.
func (j *Judge) findFits() {
	for _, s := range j.States {
		place := j.target.Place(s.Node)
		if !s.Canary { // On a node under maintenance no pod would be replaced.
			s.Fits = place.Create && s.NodeProblem == ""
			continue
		}
		// A node that is not ready has a taint against new pods, and may come back. After a failed turn the claim stays, and the machine
		// may never come back. A node that the canary may have broken stays, so that the canary neither passes nor breaks another.
		inTurn := slices.ContainsFunc(s.Claims, func(c v1alpha1.Claim) bool { return c.Failed == nil })
		s.Fits = (place.Create || place.Keep && (s.NodeProblem != "" || s.Current != nil)) && (inTurn || s.mayHaveBroken() || !j.isAbsent(s.Node))
	}
}

// findHeld finds on which nodes outside of the canary a budget lets no canary start: it is paused, its window or gate is closed,
// or by the budget the node is not healthy.
func (j *Judge) findHeld() {
	var units []rollout.Unit
	for _, s := range j.States {
		if s.Held = false; s.Fits && !s.Canary && len(j.Fleet.Budgets) > 0 {
			units = append(units, rollout.Unit{Node: s.Node.Name, State: v1alpha1.UnitOutdated})
		}
	}
	d := rollout.Decide(rollout.Strategy{UID: j.EDS.UID, MaxConcurrent: len(units), Claimless: true}, units, j.Fleet, j.Now)
	for _, w := range d.Waiting {
		// Numbers are for pods that are replaced now. They do not say which nodes are better.
		j.State(w.Node).Held = w.Reason != v1alpha1.ReasonBudgetExhausted && w.Reason != v1alpha1.ReasonMaxDomains
	}
	j.WakeAt(d.Next)
	for i := range units {
		if why, next := j.Fleet.Unhealthy(units[i].Node, j.Now); why != "" { // The canary would not pass there.
			j.State(units[i].Node).Held = true
			j.WakeAt(next)
		}
	}
}

// restarts returns how often the containers of the daemon's pods restarted on the node.
func (s *NodeState) restarts() (n int32) {
	for _, p := range []*Pod{s.Current, s.Outdated} {
		if p != nil {
			n += p.State.Restarts
		}
	}
	return n
}

// broken is 1 if the daemon's present pod on the node is not available, so that a new one may be no better there.
func (s *NodeState) broken() int {
	if p := cmp.Or(s.Current, s.Outdated); p == nil || p.Available() {
		return 0
	}
	return 1
}

// absence is how long a node of the canary may be not ready, as in a reboot, before another node replaces it.
const absence = time.Minute

// isAbsent reports whether a node has not been ready for longer than absence.
func (j *Judge) isAbsent(n *corev1.Node) bool {
	c := nodeCondition(n, corev1.NodeReady)
	return c.Status != "" && c.Status != corev1.ConditionTrue && j.HasPassed(c.LastTransitionTime.Add(absence))
}

// JudgeCanaryPods finds whether the canary's pods pause it, or make it fail.
func (j *Judge) JudgeCanaryPods() {
	h := CanaryHistory{Began: j.Now, Unpaused: j.Annotated(edsv1.AnnotationCanaryUnpaused)}
	conditions := j.Target.Status.Conditions
	if c := edsv1.TrueCondition(conditions, edsv1.ConditionCanary); c != nil {
		h.Began = c.LastTransitionTime.Time
		h.Held = c.LastUpdateTime.Time
		if c.Reason != "" {
			h.Held = j.Now
		}
	}
	if c := edsv1.TrueCondition(conditions, edsv1.ConditionPodRestarting); c != nil && !c.LastUpdateTime.Time.Before(h.Began) {
		h.FirstRestart, h.LastRestart = c.LastTransitionTime.Time, c.LastUpdateTime.Time
	}
	if c := edsv1.TrueCondition(conditions, edsv1.ConditionCanaryPaused); c != nil && !c.LastTransitionTime.Time.Before(h.Began) &&
		strings.HasPrefix(c.Message, restarting) && strings.HasSuffix(c.Message, allowed(*j.Strategy.Canary.AutoPause.MaxRestarts)) {
		h.Paused = finding{edsv1.StatusReason(c.Reason), c.Message}
	}
	w, duration := j.EDS.Status.Wave, j.Strategy.Canary.Duration
	if w != nil && w.State == v1alpha1.WaveSoaking && duration != nil && !j.Canary.Paused() && !j.Strategy.Paused {
		h.SoakEnds = w.Since.Add(duration.Duration + time.Second) // Until then canaryTimeout does not end it.
	}
	var nodes []*NodeState
	for _, s := range j.States {
		if !s.Canary {
			continue
		}
		h.NodesReady = rollout.Later(h.NodesReady, readySince(s.Node))
		if s.NodeProblem != "" && !s.mayHaveBroken() {
			h.NodesReady = j.Now
		}
		if s.Current != nil && !s.isToBlame(s.Current) {
			nodes = append(nodes, s)
		}
	}
	isCalm := !j.Now.Before(h.LastRestart.Add(ptr.Deref(j.Strategy.Canary.NoRestartsDuration, metav1.Duration{}).Duration))
	if !h.SoakEnds.IsZero() && isCalm && !slices.ContainsFunc(nodes, func(s *NodeState) bool { return !s.Current.Available() }) {
		h.SoakEnds = rollout.Later(h.SoakEnds, j.Now.Add(time.Second)) // A pass that comes late promotes it.
	}
	j.Canary.Verdict = JudgeCanary(j.Strategy.Canary, nodes, h, j.Now)
	j.WakeAt(j.Canary.Verdict.Wake)
}

// DecideCanary decides which nodes of the canary may start, and whether the canary is promoted.
//
// For the engine the canary is the first wave, and all other nodes are the second. The
// canary is promoted when the first wave is over, it is not paused, and it has at least one pod. Each pod must have been ready for
// duration, and have no restart within noRestartsDuration. The engine only counts from when it saw all pods ready, so the pods' own
// times are checked too.
func (j *Judge) DecideCanary() {
	spec, c := j.Strategy.Canary, j.Canary
	c.Units, c.Held = nil, nil // A second decision may follow, with a newer fleet.
	wave := rollout.Wave{
		Name: WaveCanary, Nodes: map[string]bool{}, Manual: spec.ValidationMode == edsv1.ValidationModeManual,
		Soak: ptr.Deref(spec.Duration, metav1.Duration{}).Duration,
	}
	allAvailable := true
	for _, s := range j.States {
		if !s.Canary {
			if s.IsCounted() {
				c.Units = append(c.Units, rollout.Unit{Node: s.Node.Name, State: v1alpha1.UnitOutdated})
			}
			continue
		}
		wave.Nodes[s.Node.Name] = true
		u := rollout.Unit{Node: s.Node.Name, State: v1alpha1.UnitUpdating, Excused: s.NodeProblem != ""}
		switch {
		case s.Current.Available():
			u.State, u.Since = v1alpha1.UnitUpdated, s.Current.State.ReadySince
			c.Until = rollout.Later(c.Until, u.Since.Add(wave.Soak))
		case s.UnitState() == v1alpha1.UnitOutdated && s.lacksPod() && (s.NodeProblem == "" || s.claim() >= 0) && !c.Paused():
			u.State = v1alpha1.UnitOutdated // Only a pause, budgets and claims can hold it: the canary has no window, and a slot for each node.
		}
		allAvailable = allAvailable && s.Current.Available()
		c.Units = append(c.Units, u)
	}
	if last := c.Verdict.LastRestart; spec.NoRestartsDuration != nil && !last.IsZero() {
		c.Until = rollout.Later(c.Until, last.Add(spec.NoRestartsDuration.Duration))
	}
	c.Strategy = rollout.Strategy{
		UID: j.EDS.UID, Revision: j.Target.Spec.TemplateGeneration, MaxConcurrent: max(1, len(wave.Nodes)), Waves: []rollout.Wave{wave}, Wave: j.EDS.Status.Wave,
		Approved: rollout.Approvals(j.EDS.Annotations, j.EDS.Status.Approval), Claimless: true, SoakLast: true, Paused: j.Strategy.Paused,
	}
	c.Decision = rollout.Decide(c.Strategy, c.Units, j.Fleet, j.Now)
	j.WakeAt(c.Decision.Next)
	for _, wait := range c.Decision.Waiting {
		if wave.Nodes[wait.Node] {
			c.Held = append(c.Held, wait)
		}
	}
	w := c.Decision.Wave
	isPast := w != nil && (w.Number != 1 || w.State == v1alpha1.WaveComplete) && len(wave.Nodes) > 0
	reason, message := j.CanaryCheck()
	c.Over = isPast && allAvailable && reason == ""
	if isPast && reason != "" {
		c.hold(wave, j.EDS.Status.Wave, reason, message, j.Now)
	}
	j.EDS.Status.Wave = c.Decision.Wave
	if reason == v1alpha1.ReasonWaveSoaking && allAvailable {
		j.WakeAt(c.Until)
	}
}

// hold keeps the canary in its wave, which soaks on, though the engine has passed it. The next decision asks again for all that ends the wave: its
// nodes may become unhealthy, and the canary may come to need a person's approval.
func (c *Canary) hold(wave rollout.Wave, before *v1alpha1.WaveStatus, reason v1alpha1.Reason, message string, now time.Time) {
	w := *c.Decision.Wave
	w.Name, w.Number, w.State, w.Message = wave.Name, 1, v1alpha1.WaveSoaking, message
	w.Nodes, w.Updated, w.Since = int32(len(wave.Nodes)), 0, metav1.Time{Time: now.Add(-wave.Soak).UTC().Truncate(time.Second)}
	if before != nil && before.Number == 1 && before.Revision == w.Revision {
		w.ApproveWith = before.ApproveWith
		if before.State == v1alpha1.WaveSoaking {
			w.Since = before.Since
		}
	}
	c.Decision.Wave, c.Decision.Waiting = &w, slices.Clone(c.Held)
	for i := range c.Units {
		switch u := &c.Units[i]; {
		case !wave.Nodes[u.Node]:
			c.Decision.Waiting = append(c.Decision.Waiting, rollout.Wait{Node: u.Node, Reason: reason, Message: message})
		case u.State == v1alpha1.UnitUpdated:
			w.Updated++
		}
	}
}

// CanaryCheck says why the canary is not promoted though its wave is over. The reason is "" if nothing prevents it.
func (j *Judge) CanaryCheck() (v1alpha1.Reason, string) {
	switch reason, message := j.PauseReason(); {
	case reason != "":
		return v1alpha1.ReasonPaused, joinParts("the canary is paused", string(reason), message)
	case j.Now.Before(j.Canary.Until):
		return v1alpha1.ReasonWaveSoaking, "the canary is promoted at " + j.Canary.Until.UTC().Format(time.RFC3339) +
			" if all its pods stay ready and none restarts"
	}
	return "", ""
}

// PauseReason is why the canary is paused; empty when it is not.
func (j *Judge) PauseReason() (reason edsv1.StatusReason, message string) {
	switch {
	case !j.Canary.Paused():
		return "", ""
	case j.Canary.Verdict.Paused:
		return j.Canary.Verdict.Reason, j.Canary.Verdict.Message
	}
	return cmp.Or(edsv1.StatusReason(j.EDS.Annotations[edsv1.AnnotationCanaryPausedReason]), edsv1.StatusReasonUnknown), ""
}

// SpentAnnotations returns the annotations that people set for a canary that is over. They would also apply to the next canary of the same
// revision. If another canary follows at once, a manual pause stays, as in ExtendedDaemonSet. A validation and an approval of the new
// canary stay too.
func (j *Judge) SpentAnnotations(revision string, another bool) []string {
	approval := ""
	if rs := j.Find(revision); rs != nil && (another || j.Strategy.Canary != nil) {
		approval = rollout.ApprovalOf(WaveCanary, rs.Spec.TemplateGeneration, "")
	}
	staysPaused := another && j.Annotated(edsv1.AnnotationCanaryPaused)
	var spent []string
	for _, a := range []struct {
		key string
		is  bool
	}{
		{edsv1.AnnotationCanaryPaused, !staysPaused},
		{edsv1.AnnotationCanaryPausedReason, !staysPaused},
		{edsv1.AnnotationCanaryUnpaused, true},
		{edsv1.AnnotationCanaryValid, !another || j.EDS.Annotations[edsv1.AnnotationCanaryValid] == revision},
		{v1alpha1.AnnotationApprove, j.EDS.Annotations[v1alpha1.AnnotationApprove] == approval},
	} {
		if _, ok := j.EDS.Annotations[a.key]; ok && a.is {
			spent = append(spent, a.key)
		}
	}
	return spent
}
