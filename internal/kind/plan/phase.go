// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"moult.dev/moult/api/v1alpha1"
)

// podPatience is how long a Job may have no pod before the status reports it. A lost Job
// is retried after the same time.
const podPatience = 10 * time.Second

// Phase returns the phase of a turn by its Job and pod, when the phase began, and what delays it.
func (t *Unit) Phase(now time.Time) (phase v1alpha1.Phase, since time.Time, message string) {
	since = t.Unit.Since
	switch {
	case t.Unit.State == v1alpha1.UnitSoaking:
		return v1alpha1.PhaseSoaking, since, t.unhealthy
	case t.unhealthy != "":
		return v1alpha1.PhaseVerifying, since, t.unhealthy
	case t.Step == StepStop, t.Job != nil && t.Job.DeletionTimestamp != nil:
		return v1alpha1.PhaseReplacing, since, "what ran on the node is being stopped"
	case t.Job == nil:
		return v1alpha1.PhaseClaimed, since, t.Unit.Message
	case t.Pod == nil && t.Job.Status.Active > 0:
		return v1alpha1.PhaseChanging, since, "" // The pod has just ended, and the Job's status does not show that yet.
	case t.Pod == nil && t.Job.Status.Failed > 0:
		return v1alpha1.PhaseStarting, since, fmt.Sprintf("failed attempts so far: %d", t.Job.Status.Failed)
	case t.Pod == nil && now.Sub(t.Job.CreationTimestamp.Time) >= podPatience:
		return v1alpha1.PhaseStarting, since, "its Job has no pod: kubectl describe job -n " + t.Job.Namespace + " " + t.Job.Name + " shows why"
	case t.Pod == nil:
		return v1alpha1.PhaseStarting, since, ""
	}
	phase, began, message := podPhase(t.Pod)
	if phase == v1alpha1.PhaseDraining {
		message = t.Message
	}
	if began.IsZero() {
		began = since
	}
	return phase, began, message
}

// podPhase returns the phase of a pod. The time is zero if no container runs and none has just ended;
// the message says why.
func podPhase(p *corev1.Pod) (phase v1alpha1.Phase, began time.Time, message string) {
	var before time.Time // when the last container ended
	initial := len(p.Status.InitContainerStatuses)
	for i, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		phase, run, end := v1alpha1.PhaseDraining, s.State.Running, s.State.Terminated
		switch {
		case i >= initial:
			phase = v1alpha1.PhaseChanging
		case s.Name == "prepare":
			phase = v1alpha1.PhasePreparing
		}
		why := waiting(&s)
		switch {
		case run != nil:
			return phase, run.StartedAt.Time, ""
		case end != nil && phase == v1alpha1.PhaseChanging:
			return phase, end.StartedAt.Time, ""
		case end != nil:
			before = end.FinishedAt.Time
		case why != "":
			return v1alpha1.PhaseStarting, began, why
		case !before.IsZero():
			return phase, before, ""
		}
	}
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return v1alpha1.PhaseStarting, began, c.Reason + ": " + c.Message
		}
	}
	return v1alpha1.PhaseStarting, began, ""
}

// waiting says why a container can't start. It returns "" while the container starts normally.
func waiting(s *corev1.ContainerStatus) string {
	w := s.State.Waiting
	if w == nil || w.Reason == "" || w.Reason == "PodInitializing" || w.Reason == "ContainerCreating" {
		return ""
	}
	text := "container " + s.Name + " waits: " + w.Reason
	if w.Message != "" {
		text += ": " + w.Message
	}
	return text
}
