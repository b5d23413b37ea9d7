// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/kind/history"
	"moult.dev/moult/internal/rollout"
)

// SetCondition updates a condition. It adds a condition that is False only if kstatus reads that condition. The times change only when
// something else in the condition changes.
func SetCondition(conditions *[]edsv1.Condition, kind string, is bool, reason, message string, now time.Time) {
	status := metav1.ConditionFalse
	if is {
		status = metav1.ConditionTrue
	}
	kstatus := kind == edsv1.ConditionReady || kind == edsv1.ConditionReconciling || kind == edsv1.ConditionStalled
	if !is && !kstatus && edsv1.FindCondition(*conditions, kind) == nil {
		return
	}
	c := findOrAdd(conditions, kind)
	if c.Status == status && c.Reason == reason && c.Message == message {
		return
	}
	at := metav1.NewTime(now.Truncate(time.Second))
	if c.Status != status {
		c.LastTransitionTime = at
	}
	c.Status, c.Reason, c.Message, c.LastUpdateTime = status, reason, message, at
}

// findOrAdd returns the condition of a type. It adds one without a status if there is none.
func findOrAdd(conditions *[]edsv1.Condition, kind string) *edsv1.Condition {
	if edsv1.FindCondition(*conditions, kind) == nil {
		*conditions = append(*conditions, edsv1.Condition{Type: kind})
	}
	return edsv1.FindCondition(*conditions, kind)
}

// Summarize writes the status of the ExtendedDaemonSet. problem says why nothing was decided, or is nil.
func (j *Judge) Summarize(reason string, problem error) {
	s := &j.EDS.Status
	s.ObservedGeneration = j.EDS.Generation
	if problem != nil {
		j.setHealth(problem.Error(), reason)
		SetCondition(&s.Conditions, edsv1.ConditionReconcileError, true, reason, problem.Error(), j.Now)
		return
	}
	c := j.total()
	s.Desired, s.Current, s.Ready, s.Available = c.Desired, c.Current, c.Ready, c.Available
	s.UpToDate, s.IgnoredUnresponsiveNodes = 0, c.Unresponsive
	for _, at := range j.States {
		if at.Current != nil && (j.Canary == nil || at.Canary) {
			s.UpToDate++
		}
	}
	j.setState()
	s.Updating, s.Waiting = j.listUnits()
	reason, message := j.reconcileError()
	SetCondition(&s.Conditions, edsv1.ConditionReconcileError, message != "", reason, message, j.Now)
	busy := len(j.Decision.Start) > 0 || slices.ContainsFunc(j.Units, func(u rollout.Unit) bool {
		return u.State == v1alpha1.UnitUpdating && !u.Excused
	})
	switch invalid := j.Rolling.Problem(); {
	case j.CanaryFailed():
		j.setHealth(j.canaryFailure(), edsv1.ReasonCanaryFailed)
	case j.Decision.Halted != "" && !busy:
		j.setHealth(j.Decision.Halted, string(v1alpha1.ReasonHalted))
	case invalid != "" && len(j.Decision.Waiting) > 0:
		j.setHealth(invalid, string(v1alpha1.ReasonStrategyInvalid))
	default:
		j.setHealth("", "")
	}
}

// setState writes the state, in the words of DataDog's ExtendedDaemonSet.
func (j *Judge) setState() {
	s := &j.EDS.Status
	s.Reason = ""
	reason, failure, paused := "", "", ""
	if j.CanaryFailed() {
		reason, failure = edsv1.ReasonCanaryFailed, j.canaryFailure()
	}
	switch {
	case j.Canary.Paused():
		s.State, paused = edsv1.StateCanaryPaused, "canary paused with ers: "+j.Target.Name
		s.Reason, _ = j.PauseReason()
	case j.Canary != nil:
		s.State = edsv1.StateCanary
	case failure != "" && j.counts(j.Target.Name).All > 0:
		// The state shows the failure until the canary's pods are gone. After that only the conditions show it.
		s.State = edsv1.StateCanaryFailed
		s.Reason = edsv1.StatusReason(edsv1.FindCondition(j.Target.Status.Conditions, edsv1.ConditionCanaryFailed).Reason)
	default:
		s.State = j.rollingState()
	}
	SetCondition(&s.Conditions, edsv1.ConditionCanaryPaused, paused != "", string(s.Reason), paused, j.Now)
	SetCondition(&s.Conditions, edsv1.ConditionCanaryFailed, failure != "", reason, failure, j.Now)
}

// rollingState is the state without a canary.
func (j *Judge) rollingState() edsv1.State {
	switch paused, _ := j.IsPaused(); {
	case j.Annotated(edsv1.AnnotationRolloutFrozen):
		return edsv1.StateRolloutFrozen
	case paused:
		return edsv1.StateRollingUpdatePaused
	}
	return edsv1.StateRunning
}

// EndCanary removes the canary from the status, and its approval, which would also apply to the next canary of the same revision.
func (j *Judge) EndCanary() {
	s := &j.EDS.Status
	if s.Approval != nil && len(s.History) > 0 && s.History[0].EndedAt == nil {
		s.History[0].ApprovedBy = s.Approval.By
	}
	s.Canary, s.Wave, s.Approval, s.State, s.Reason = nil, nil, nil, j.rollingState(), ""
	SetCondition(&s.Conditions, edsv1.ConditionCanaryPaused, false, "", "", j.Now)
}

// canaryFailure says which canary has failed, and why.
func (j *Judge) canaryFailure() string {
	c := edsv1.FindCondition(j.Target.Status.Conditions, edsv1.ConditionCanaryFailed)
	return joinParts("canary failed with ers: "+j.Target.Name, c.Reason, c.Message)
}

// joinParts joins the parts that are not empty.
func joinParts(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(part string) bool { return part == "" }), ": ")
}

// setHealth sets the conditions of kstatus. stalled says why nothing happens, or is "".
func (j *Judge) setHealth(stalled, reason string) {
	s := &j.EDS.Status
	done := stalled == "" && j.Canary == nil && s.UpToDate == s.Desired && s.Available >= s.Desired && s.Current == s.Desired
	set := func(kind string, is bool, reason, message string) {
		SetCondition(&s.Conditions, kind, is, reason, message, j.Now)
	}
	set(edsv1.ConditionStalled, stalled != "", reason, stalled)
	message, progress := stalled, ""
	switch {
	case done:
		reason, message = "Complete", fmt.Sprintf("all %d pods are up to date and available", s.Desired)
	case stalled == "":
		_, why := j.startProblem()
		progress = joinParts(fmt.Sprintf("%d of %d pods are up to date, %d are available", s.UpToDate, s.Desired, s.Available), why)
		if c := j.Canary; c != nil && len(c.Held) > 0 {
			progress = fmt.Sprintf("the canary waits on node %s: %s", c.Held[0].Node, c.Held[0].Message)
		} else if c != nil && c.Decision.Wave != nil {
			progress = cmp.Or(c.Decision.Wave.Message, progress)
		}
		reason, message = "Progressing", progress
	}
	set(edsv1.ConditionReconciling, progress != "", reason, progress)
	set(edsv1.ConditionReady, done, reason, message)
}

// startProblem says why the first pod of the active revision that can't start does not. It leaves out pods that the scheduler has no place
// for, which the condition Unschedule lists.
func (j *Judge) startProblem() (reason edsv1.StatusReason, message string) {
	for _, s := range j.States {
		pod := s.Current
		if s.Canary || pod == nil || pod.Spec.NodeName == "" || pod.State.Creating.IsZero() || pod.State.Message == "" || s.NodeProblem != "" {
			continue
		}
		reason = cmp.Or(pod.State.CannotStart, pod.State.RestartReason, "ContainerCreating")
		return reason, cannotStartMessage(pod.Name, reason, "on node "+s.Node.Name+": "+pod.State.Message)
	}
	return "", ""
}

// listed are the states of units that status.updating lists, with their phases.
var listed = map[v1alpha1.UnitState]v1alpha1.Phase{
	v1alpha1.UnitUpdating: v1alpha1.PhaseChanging, v1alpha1.UnitSoaking: v1alpha1.PhaseSoaking, v1alpha1.UnitFailed: "",
}

// listUnits returns the first nodes whose pods are being replaced, and the first nodes that wait.
func (j *Judge) listUnits() (updating, waiting []v1alpha1.UnitStatus) {
	for i := range j.Units {
		u := &j.Units[i]
		if phase, ok := listed[u.State]; ok && len(updating) < v1alpha1.MaxListedUnits {
			message := u.Message
			if u.State == v1alpha1.UnitUpdating {
				_, message = j.Progress(j.State(u.Node))
			}
			updating = append(updating, v1alpha1.UnitStatus{Node: u.Node, Phase: phase, Reason: u.Reason, Message: message})
		}
	}
	waits := j.Waits()
	for _, w := range waits[:min(len(waits), v1alpha1.MaxListedUnits)] {
		waiting = append(waiting, v1alpha1.UnitStatus{Node: w.Node, Reason: w.Reason, Message: w.Message})
	}
	return updating, waiting
}

// Waits says why each waiting node waits, in the order in which the nodes start. Failed nodes do not wait.
func (j *Judge) Waits() []rollout.Wait {
	waits := slices.Clone(j.Decision.Waiting)
	if j.Canary != nil {
		waits = slices.Concat(j.Canary.Decision.Waiting, waits)
	}
	seen := make(map[string]bool, len(waits))
	for i := range j.Units {
		if u := &j.Units[i]; u.State == v1alpha1.UnitFailed {
			seen[u.Node] = true
		}
	}
	return slices.DeleteFunc(waits, func(w rollout.Wait) bool {
		isKnown := seen[w.Node]
		seen[w.Node] = true
		return isKnown
	})
}

// Progress says what a node in its turn waits for, and since when.
func (j *Judge) Progress(s *NodeState) (since time.Time, message string) {
	switch p := s.Current; {
	case p.Available() && s.Outdated != nil:
		return p.CreationTimestamp.Time, "pod " + s.Outdated.Name + " is deleted, its successor is available"
	case p != nil && p.State.Ready:
		return p.CreationTimestamp.Time, "pod " + p.Name + " is not available before spec.minReadySeconds have passed"
	case p != nil && p.State.Message == "":
		return p.CreationTimestamp.Time, "pod " + p.Name + " is not ready"
	case p != nil:
		return p.CreationTimestamp.Time, "pod " + p.Name + ": " + p.State.Message
	case s.Terminating != nil:
		return DeletedAt(s.Terminating.Pod), "pod " + s.Terminating.Name + " has been deleted, and is not gone yet"
	case s.Ended != nil:
		return s.Ended.CreationTimestamp.Time, "pod " + s.Ended.Name + ": " + s.Ended.State.Message
	case s.Canary && j.Canary.Paused():
		_, paused := j.CanaryCheck()
		return since, paused + "; no pod is created"
	case s.Outdated != nil:
		return since, "pod " + s.Outdated.Name + " is deleted next"
	}
	return since, "no pod yet"
}

// DeletedAt returns when a pod was deleted. The deletion timestamp is the end of the grace period.
func DeletedAt(p *corev1.Pod) time.Time {
	return p.DeletionTimestamp.Add(-time.Duration(ptr.Deref(p.DeletionGracePeriodSeconds, 0)) * time.Second)
}

// ReasonRefused is the condition's reason where the API server refuses a pod.
const ReasonRefused = "PodRefused"

// reconcileError returns the API server's refusal, or what is invalid in the strategy or in node annotations. It reports the first node, so
// the message does not change with each attempt.
func (j *Judge) reconcileError() (reason, message string) {
	invalid := ""
	for _, s := range j.States {
		if !s.Refused.At.IsZero() {
			return ReasonRefused, s.Refused.Message
		}
		invalid = cmp.Or(invalid, s.Invalid)
	}
	switch why := j.Rolling.Problem(); {
	case why != "":
		return string(v1alpha1.ReasonStrategyInvalid), why
	case invalid != "":
		return "NodeAnnotationInvalid", invalid
	}
	return "", ""
}

// ReplicaSetStatus is the status of a revision.
func (j *Judge) ReplicaSetStatus(rs *ReplicaSet) edsv1.ExtendedDaemonSetReplicaSetStatus {
	s := *rs.Status.DeepCopy()
	counts := j.counts(rs.Name)
	s.Desired, s.Current, s.Ready, s.Available = counts.Desired, counts.Current, counts.Ready, counts.Available
	s.IgnoredUnresponsiveNodes = counts.Unresponsive
	active, canary := rs == j.Active, rs == j.Target && j.Canary != nil
	switch {
	case active:
		s.Status = edsv1.ReplicaSetActive
	case canary:
		s.Status = edsv1.ReplicaSetCanary
	case rs == j.Target && HasFailed(rs):
		s.Status = edsv1.ReplicaSetCanaryFailed
	default:
		s.Status = edsv1.ReplicaSetUnknown
	}
	set := func(kind string, is bool, reason, message string) {
		SetCondition(&s.Conditions, kind, is, reason, message, j.Now)
	}
	set(edsv1.ConditionActive, active, "", "")
	var held rollout.Wait
	if canary && len(j.Canary.Held) > 0 {
		held = j.Canary.Held[0]
	}
	set(edsv1.ConditionCanary, canary, string(held.Reason), held.Message) // Its lastUpdateTime says when the hold began, or ended.
	set(edsv1.ConditionRollingUpdatePaused, active && (j.Annotated(edsv1.AnnotationRollingUpdatePaused) || j.Strategy.Paused), "", "")
	set(edsv1.ConditionRolloutFrozen, active && j.Annotated(edsv1.AnnotationRolloutFrozen), "", "")
	unscheduled, reason, problem := "", "", ""
	if active || canary {
		unscheduled = j.unscheduledPods(canary)
		reason, problem = j.reconcileError()
	}
	set(edsv1.ConditionUnschedule, unscheduled != "", "", unscheduled)
	set(edsv1.ConditionReconcileError, problem != "", reason, problem)
	var v Verdict
	var paused edsv1.StatusReason
	message := ""
	switch {
	case canary:
		v = j.Canary.Verdict
		paused, message = j.PauseReason()
	case active:
		v.CannotStart, v.CannotStartMessage = j.startProblem()
	}
	set(edsv1.ConditionCanaryPaused, paused != "", string(paused), message)
	set(edsv1.ConditionPodCannotStart, v.CannotStart != "", string(v.CannotStart), v.CannotStartMessage)
	if !v.FirstRestart.IsZero() {
		setRestarting(&s.Conditions, v)
	}
	if active {
		// A person may fail a canary in the moment of its promotion. The active revision must not count as failed.
		set(edsv1.ConditionCanaryFailed, false, "", "")
		j.setBatches(&s.Conditions)
	}
	return s
}

// setRestarting records the first and the last restart of the canary's pods, as lastTransitionTime and lastUpdateTime of the condition.
// ExtendedDaemonSet does the same.
func setRestarting(conditions *[]edsv1.Condition, v Verdict) {
	c := findOrAdd(conditions, edsv1.ConditionPodRestarting)
	c.Status, c.Reason, c.Message = metav1.ConditionTrue, string(v.Reason), cmp.Or(v.RestartMessage, c.Message)
	c.LastTransitionTime, c.LastUpdateTime = metav1.NewTime(v.FirstRestart.Truncate(time.Second)), metav1.NewTime(v.LastRestart.Truncate(time.Second))
}

// unscheduledPods lists the nodes whose pods are not scheduled, or returns "".
func (j *Judge) unscheduledPods(canary bool) string {
	var nodes []string
	for _, s := range j.States {
		if s.Canary != canary || s.Current == nil || s.Current.Spec.NodeName != "" || s.Current.State.Ready {
			continue
		}
		if c := podCondition(s.Current.Pod, corev1.PodScheduled); c != nil && c.Status == corev1.ConditionFalse {
			nodes = append(nodes, s.Node.Name)
		}
	}
	if len(nodes) == 0 {
		return ""
	}
	if more := len(nodes) - v1alpha1.MaxListedUnits; more > 0 {
		nodes = append(nodes[:v1alpha1.MaxListedUnits], fmt.Sprintf("and %d more", more))
	}
	return "nodes:" + strings.Join(nodes, ";")
}

// setBatches writes when pods were last created, replaced and cleaned up.
func (j *Judge) setBatches(conditions *[]edsv1.Condition) {
	for _, kind := range []string{edsv1.ConditionPodCreation, edsv1.ConditionPodDeletion, edsv1.ConditionPodsCleanupDone} {
		at := j.Batches[kind].Truncate(time.Second)
		if c := edsv1.FindCondition(*conditions, kind); !at.IsZero() && (c == nil || c.LastUpdateTime.Time.Before(at)) {
			SetCondition(conditions, kind, true, "", "", at)
			edsv1.FindCondition(*conditions, kind).LastUpdateTime = metav1.NewTime(at)
		}
	}
}

// History returns the runs after these, once Summarize has written the rest of the status. A run is a ReplicaSet's way to all nodes, with its
// canary. A canary that fails halts it, and so does one that autoPause has paused for restarts.
func (j *Judge) History(before []v1alpha1.Run) []v1alpha1.Run {
	s := &j.EDS.Status
	if j.Units == nil { // Nothing is decided.
		return before
	}
	paused, _ := j.IsPaused()
	o := history.Observation{
		Revision: j.Target.Name, CreatedBy: history.CreatedBy(j.EDS), Wave: s.Wave, Approval: s.Approval,
		Counts: v1alpha1.UnitCounts{Total: s.Desired, Updated: s.UpToDate}, Complete: edsv1.IsConditionTrue(s.Conditions, edsv1.ConditionReady),
		Paused: paused || j.Canary.Paused(), Failed: map[v1alpha1.Reason]int32{},
	}
	stalled := ptr.Deref(edsv1.TrueCondition(s.Conditions, edsv1.ConditionStalled), edsv1.Condition{})
	o.Halted = stalled.Reason == string(v1alpha1.ReasonHalted) || j.CanaryFailed() || j.Canary != nil && j.Canary.Verdict.Paused && strings.HasPrefix(j.Canary.Verdict.Message, restarting)
	units := j.Units
	if j.Canary != nil {
		units = j.Canary.Units
	}
	for i := range units {
		switch units[i].State {
		case v1alpha1.UnitOutdated:
			o.Counts.Waiting++
		case v1alpha1.UnitUpdating, v1alpha1.UnitSoaking:
			o.Counts.Updating++
		case v1alpha1.UnitFailed:
			o.Failed[units[i].Reason]++
		}
	}
	if waits := j.Waits(); len(waits) > 0 {
		o.Wait = waits[0].Reason
	}
	if j.CanaryFailed() { // The other pods are those of the revision before.
		n := max(1, j.counts(j.Target.Name).All)
		o.Counts = v1alpha1.UnitCounts{Total: s.Desired, Waiting: max(0, s.Desired-n)}
		o.Failed, o.Wait = map[v1alpha1.Reason]int32{v1alpha1.ReasonPodFailed: n}, v1alpha1.ReasonHalted
	}
	for _, n := range o.Failed {
		o.Counts.Failed += n
	}
	return history.Next(before, o, j.Now)
}
