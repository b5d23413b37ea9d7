// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/rollout"
)

// Canary is the state of a canary.
type Canary struct {
	// PausedByHand is true when the annotation pauses it.
	PausedByHand bool
	// Wanted is on how many nodes it should run.
	Wanted  int
	Verdict Verdict
	// Strategy, Units and Decision are of the engine, which decides about the canary as the first wave of two. Every node outside of the
	// canary is among those that wait.
	Strategy rollout.Strategy
	Units    []rollout.Unit
	Decision rollout.Decision
	// Until is when it can be promoted at the earliest: until then its pods have not been ready, or without a restart, for long enough.
	Until time.Time
	// Over is true when it is promoted.
	Over bool
}

// Paused reports whether the canary is paused, by hand or by autoPause.
func (c *Canary) Paused() bool { return c != nil && (c.PausedByHand || c.Verdict.Paused) }

// CanaryWanted reports whether a canary goes on: the target revision is not active, and has not failed.
func (j *Judge) CanaryWanted() bool {
	return j.Target != j.Active && j.Strategy.Canary != nil && !HasFailed(j.Target)
}

// CanaryFailed reports whether the target revision has failed as a canary.
func (j *Judge) CanaryFailed() bool { return j.Target != j.Active && HasFailed(j.Target) }

// StartCanary begins to decide about the canary, and returns the nodes that it should run on.
func (j *Judge) StartCanary() []string {
	candidates, desired := j.candidates()
	j.Canary = &Canary{
		PausedByHand: j.Annotated(edsv1.AnnotationCanaryPaused), Wanted: max(1, Count(j.Strategy.Canary.Replicas, desired)),
	}
	var before []string
	if c := j.EDS.Status.Canary; c != nil {
		before = c.Nodes
	}
	return PickCanaries(j.Strategy.Canary, j.Canary.Wanted, before, candidates)
}

// candidates are the nodes on which the canary may run, and how many the ExtendedDaemonSet has in all.
func (j *Judge) candidates() (nodes []CanaryNode, desired int) {
	for i := range j.States {
		s := &j.States[i]
		if s.Counts() {
			desired++
		}
		n := CanaryNode{Node: s.Node, Claimed: s.isClaimed()}
		place := j.target.Place(s.Node)
		// A node that is not ready has a taint that keeps new pods away, and may come back.
		n.Fits = place.Create || place.Keep && s.Canary && (s.NodeProblem != "" || s.Current != nil)
		turn := slices.ContainsFunc(s.Known.Claims, func(c v1alpha1.Claim) bool { return c.Failed == nil })
		switch {
		case !s.Canary: // On a node under maintenance no pod would be replaced.
			n.Fits = n.Fits && s.NodeProblem == ""
		case !turn: // A turn that has failed keeps its claim, and its machine may never come back.
			n.Fits = n.Fits && !j.isAbsent(s.Known)
		}
		for _, p := range []*Pod{s.Current, s.Outdated} {
			if p != nil {
				n.Restarts += p.Look.Restarts
			}
		}
		nodes = append(nodes, n)
	}
	return nodes, desired
}

// absence is how long a node of the canary may be not ready, as in a reboot, before another takes its place.
const absence = time.Minute

// isAbsent reports whether a node has not been ready for longer than that.
func (j *Judge) isAbsent(n *rollout.Node) bool {
	for i := range n.Conditions {
		if c := &n.Conditions[i]; c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
			until := c.LastTransitionTime.Add(absence)
			if j.Now.Before(until) {
				j.WakeAt(until)
				return false
			}
			return true
		}
	}
	return false
}

// JudgeCanaryPods finds whether the canary's pods pause it, or make it fail.
func (j *Judge) JudgeCanaryPods() {
	h := CanaryHistory{Began: j.Now, Unpaused: j.Annotated(edsv1.AnnotationCanaryUnpaused)}
	conditions := j.Target.Status.Conditions
	if c := edsv1.FindCondition(conditions, edsv1.ConditionCanary); c != nil && c.Status == metav1.ConditionTrue {
		h.Began = c.LastTransitionTime.Time
	}
	restarting := edsv1.FindCondition(conditions, edsv1.ConditionPodRestarting)
	if c := restarting; c != nil && c.Status == metav1.ConditionTrue && !c.LastUpdateTime.Time.Before(h.Began) {
		h.FirstRestart, h.LastRestart = c.LastTransitionTime.Time, c.LastUpdateTime.Time
	}
	var pods []CanaryPod
	nodesReady := h.Began // since when all nodes are ready
	for i := range j.States {
		s := &j.States[i]
		if !s.Canary {
			continue
		}
		if s.NodeProblem != "" {
			nodesReady = j.Now
		}
		nodesReady = latest(nodesReady, readySince(s.Known))
		if s.Current != nil {
			pods = append(pods, CanaryPod{Node: s.Node, Excused: s.excuses(s.Current), Look: s.Current.Look})
		}
	}
	v := JudgeCanary(j.Strategy.Canary, pods, h, j.Now)
	if v.Failed && v.Reason == edsv1.StatusReasonTimeoutExceeded && nodesReady.After(h.Began) {
		// The time that a node was not ready does not count: canaryTimeout begins anew.
		h.Began = nodesReady
		v = JudgeCanary(j.Strategy.Canary, pods, h, j.Now)
	}
	j.Canary.Verdict = v
	j.WakeAt(v.Wake)
}

// DecideCanary asks the engine whether the canary is over. The canary is the first wave, and all other nodes are the second.
func (j *Judge) DecideCanary() {
	spec, c := j.Strategy.Canary, j.Canary
	wave := rollout.Wave{Name: WaveCanary, Nodes: map[string]bool{}, Manual: spec.ValidationMode == edsv1.ValidationModeManual}
	if spec.Duration != nil {
		wave.Soak = spec.Duration.Duration
	}
	for i := range j.States {
		s := &j.States[i]
		u := rollout.Unit{Node: s.Node.Name, State: v1alpha1.UnitOutdated}
		if s.Canary {
			wave.Nodes[s.Node.Name] = true
			u.State, u.Excused = v1alpha1.UnitUpdating, s.NodeProblem != ""
			if s.Current.Available() {
				u.State, u.Since = v1alpha1.UnitUpdated, s.Current.Look.ReadySince
			}
		} else if !s.Counts() {
			continue
		}
		c.Units = append(c.Units, u)
	}
	c.Strategy = rollout.Strategy{
		UID: j.EDS.UID, Revision: j.Hash, MaxConcurrent: max(1, len(wave.Nodes)), Waves: []rollout.Wave{wave}, Wave: j.EDS.Status.Wave,
		Approved: j.EDS.Annotations[v1alpha1.AnnotationApprove], Beside: true, SoakLast: true,
	}
	c.Decision = rollout.Decide(c.Strategy, c.Units, j.Fleet, j.Now)
	j.EDS.Status.Wave = c.Decision.Wave
	j.WakeAt(c.Decision.Next)
	j.finishCanary()
}

// finishCanary decides whether the canary is promoted: the engine says that its wave is over, it is not paused, and each of its pods, of
// which there is at least one, has been ready for the duration and has not restarted of late. The engine counts from when it first
// saw all of them ready, and the pods show what happened before that.
func (j *Judge) finishCanary() {
	c := j.Canary
	pods, available := j.readCanaryPods()
	w := c.Decision.Wave
	waveOver := w != nil && (w.Number != 1 || w.State == v1alpha1.WaveComplete)
	reason, message := j.CanaryCheck()
	c.Over = waveOver && available && pods > 0 && reason == ""
	if reason == v1alpha1.ReasonWaveSoaking && available && !c.Paused() {
		j.WakeAt(c.Until)
	}
	if c.Over || reason == "" {
		return
	}
	waiting := make([]rollout.Wait, 0, len(c.Decision.Start)+len(c.Decision.Waiting))
	for _, node := range c.Decision.Start {
		waiting = append(waiting, rollout.Wait{Node: node, Reason: reason, Message: message})
	}
	c.Decision.Waiting = append(waiting, c.Decision.Waiting...)
}

// readCanaryPods finds until when the canary goes on at least. It counts its available pods, and reports whether all are.
func (j *Judge) readCanaryPods() (pods int, available bool) {
	c, spec := j.Canary, j.Strategy.Canary
	available = true
	for i := range j.States {
		s := &j.States[i]
		switch {
		case !s.Canary:
			continue
		case !s.Current.Available():
			available = false
			continue
		}
		pods++
		look := s.Current.Look
		if spec.Duration != nil {
			c.Until = latest(c.Until, look.ReadySince.Add(spec.Duration.Duration))
		}
		if spec.NoRestartsDuration != nil && !look.LastRestart.IsZero() && look.Restarts > 0 && !s.excuses(s.Current) {
			c.Until = latest(c.Until, look.LastRestart.Add(spec.NoRestartsDuration.Duration))
		}
	}
	if last := c.Verdict.LastRestart; spec.NoRestartsDuration != nil && !last.IsZero() {
		c.Until = latest(c.Until, last.Add(spec.NoRestartsDuration.Duration))
	}
	return pods, available
}

// CanaryCheck says why the canary is not promoted though its wave is over; the reason is "" when it is.
func (j *Judge) CanaryCheck() (v1alpha1.Reason, string) {
	switch {
	case j.Canary.Paused():
		return v1alpha1.ReasonPaused, j.canaryPauseMessage()
	case j.Now.Before(j.Canary.Until):
		return v1alpha1.ReasonWaveSoaking, "the canary is over at " + j.Canary.Until.UTC().Format(time.RFC3339) +
			", if its pods stay ready and none restarts until then"
	}
	return "", ""
}

// canaryPauseMessage says that the canary is paused, and why.
func (j *Judge) canaryPauseMessage() string {
	text := "the canary is paused"
	for _, part := range []string{string(j.PauseReason()), j.pauseMessage()} {
		if part != "" {
			text += ": " + part
		}
	}
	return text
}

// PauseReason is why the canary is paused; empty when it is not.
func (j *Judge) PauseReason() edsv1.StatusReason {
	switch {
	case !j.Canary.Paused():
		return ""
	case j.Canary.Verdict.Paused:
		return j.Canary.Verdict.Reason
	}
	if reason := j.EDS.Annotations[edsv1.AnnotationCanaryPausedReason]; reason != "" {
		return edsv1.StatusReason(reason)
	}
	return edsv1.StatusReasonUnknown
}

func (j *Judge) pauseMessage() string {
	if j.Canary.Paused() && j.Canary.Verdict.Paused {
		return j.Canary.Verdict.Message
	}
	return ""
}

// SpentAnnotations are those that people have set for a canary that is over. A validation or an approval would apply to the next canary of
// the same revision, too.
func (j *Judge) SpentAnnotations() []string {
	var spent []string
	for _, key := range []string{
		edsv1.AnnotationCanaryPaused, edsv1.AnnotationCanaryPausedReason, edsv1.AnnotationCanaryUnpaused, edsv1.AnnotationCanaryValid,
	} {
		if _, ok := j.EDS.Annotations[key]; ok {
			spent = append(spent, key)
		}
	}
	if j.Strategy.Canary != nil && j.EDS.Annotations[v1alpha1.AnnotationApprove] == rollout.ApprovalOf(WaveCanary, j.Hash) {
		spent = append(spent, v1alpha1.AnnotationApprove)
	}
	return spent
}

// AnnotationsOf are those that were set for the canary of this revision alone, where the next one begins before it was over. A pause by
// hand stays, as with ExtendedDaemonSet: it pauses the next canary too. That autoPause was overruled does not apply to other pods.
func (j *Judge) AnnotationsOf(revision string) []string {
	var spent []string
	add := func(key string, is bool) {
		if _, ok := j.EDS.Annotations[key]; ok && is {
			spent = append(spent, key)
		}
	}
	paused := j.Annotated(edsv1.AnnotationCanaryPaused)
	add(edsv1.AnnotationCanaryPaused, !paused) // kubectl eds takes "false" for a canary that was unpaused already.
	add(edsv1.AnnotationCanaryPausedReason, !paused)
	add(edsv1.AnnotationCanaryUnpaused, true)
	add(edsv1.AnnotationCanaryValid, j.EDS.Annotations[edsv1.AnnotationCanaryValid] == revision)
	if rs := j.Find(revision); rs != nil {
		add(v1alpha1.AnnotationApprove, j.EDS.Annotations[v1alpha1.AnnotationApprove] == rollout.ApprovalOf(WaveCanary, HashOf(rs)))
	}
	return spent
}
