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
	"moult.dev/moult/internal/rollout"
)

const (
	// unscheduledFor is how long a pod may be without a node.
	unscheduledFor = 10 * time.Minute
	// leastResponse is the least time that a pod may exist after its grace period.
	leastResponse = 10 * time.Second
	// maxDetail bounds what is quoted of a kubelet's or scheduler's message, in bytes.
	maxDetail = 300
)

// PodState is the state of a daemon pod.
type PodState struct {
	// Ready is its condition Ready. Available is true if it has been ready for long enough.
	Ready, Available bool
	// Terminating is true if it was deleted and still exists.
	Terminating bool
	// Failed is true if it has ended, with an error or without, and nothing restarts it.
	Failed bool
	// ReadySince is when it became ready; zero when it is not.
	ReadySince time.Time
	// Wake is when the clock alone changes any field; zero means never.
	Wake time.Time
	// Restarts is the count of the container that has restarted most, RestartContainer. Init containers count too.
	Restarts         int32
	RestartContainer string
	// RestartReason is why that container ended the last time, as the kubelet says; empty without restarts.
	RestartReason edsv1.StatusReason
	// Lost is true if RestartContainer was gone when its machine or the container runtime came back.
	Lost bool
	// LastRestart is when any container restarted, or ended before a restart, the last time; zero without restarts, or when unknown.
	LastRestart time.Time
	// CannotStart is why a container can't start, if the problem does not pass by itself; else empty.
	CannotStart edsv1.StatusReason
	// Message says what is wrong with the pod; empty when nothing is known to be.
	Message string
	// Creating is since when its node, or else the scheduler, has been starting it; zero when all its containers have started.
	Creating time.Time
	// Unresponsive is true if the scheduler or the kubelet does not act on it. It was not scheduled for 10 minutes, or still exists a
	// second grace period (at least 10 seconds) after its grace period.
	Unresponsive bool
}

// StateOfPod returns the state of a pod. The pod is available when it has been ready for minReady.
func StateOfPod(p *corev1.Pod, minReady time.Duration, now time.Time) PodState {
	l := PodState{
		Terminating: p.DeletionTimestamp != nil,
		Failed:      p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded,
	}
	if c := podCondition(p, corev1.PodReady); c != nil && c.Status == corev1.ConditionTrue {
		l.Ready, l.ReadySince = true, c.LastTransitionTime.Time
		// Without a minimum the clocks of node and controller do not matter.
		l.Available = minReady <= 0 || hasPassed(&l.Wake, l.ReadySince.Add(minReady), now)
	}
	containers := p.Status.ContainerStatuses
	if len(p.Status.InitContainerStatuses) > 0 {
		containers = slices.Concat(containers, p.Status.InitContainerStatuses)
	}
	l.readRestarts(containers)
	l.readStart(p, containers)
	l.readResponse(p, now)
	if l.Message == "" && !l.Ready {
		l.Message = l.problem(p)
	}
	return l
}

// readRestarts finds how often, when and why containers restarted.
func (l *PodState) readRestarts(containers []corev1.ContainerStatus) {
	for i := range containers {
		c := &containers[i]
		if c.RestartCount == 0 {
			continue
		}
		last := ptr.Deref(c.LastTerminationState.Terminated, corev1.ContainerStateTerminated{})
		running := ptr.Deref(c.State.Running, corev1.ContainerStateRunning{})
		// An init container may have completed: that is no restart, but its start was one.
		completed := ptr.Deref(c.State.Terminated, corev1.ContainerStateTerminated{})
		for _, at := range []metav1.Time{last.FinishedAt, running.StartedAt, completed.StartedAt} {
			if at.Unix() > 0 { // A container that could not be started says 1970.
				l.LastRestart = rollout.Later(l.LastRestart, at.Time)
			}
		}
		if c.RestartCount > l.Restarts {
			l.Restarts, l.RestartContainer = c.RestartCount, c.Name
			l.RestartReason = cmp.Or(edsv1.StatusReason(last.Reason), edsv1.StatusReasonUnknown)
			l.Lost = last.Reason == "Unknown" && last.ExitCode == 255 || last.Reason == "ContainerStatusUnknown"
		}
	}
}

// readStart finds whether the pod is being started, and why it can't be.
func (l *PodState) readStart(p *corev1.Pod, containers []corev1.ContainerStatus) {
	if l.Terminating || l.Failed {
		return
	}
	for i := range containers {
		if reason, detail := startProblem(&containers[i]); reason != "" && l.CannotStart == "" {
			l.CannotStart = reason
			l.Message = withDetail(fmt.Sprintf("container %s can't start, %s", containers[i].Name, reason), detail)
		}
	}
	if l.CannotStart != "" || p.Status.Phase == corev1.PodPending || p.Status.Phase == "" {
		l.Creating = p.CreationTimestamp.Time
		if t := p.Status.StartTime; t != nil {
			l.Creating = t.Time
		}
	}
}

// startProblem is why a container can't be started, and the kubelet's message about it.
func startProblem(c *corev1.ContainerStatus) (reason edsv1.StatusReason, detail string) {
	ended := c.State.Terminated
	if w := c.State.Waiting; w != nil {
		switch w.Reason {
		case "ErrImagePull", "ImagePullBackOff", "ImageInspectError", "ErrImageNeverPull", "RegistryUnavailable", "InvalidImageName",
			"SignatureValidationFailed", "ImageVolumeMountFailed", "CreateContainerConfigError", "CreateContainerError",
			"PreCreateHookError", "PreStartHookError", "PostStartHookError", string(edsv1.StatusReasonStartError):
			return edsv1.StatusReason(w.Reason), w.Message
		case "RunContainerError":
			return edsv1.StatusReasonStartError, w.Message
		case "CrashLoopBackOff": // The kubelet waits before it tries again what the runtime could not do.
			ended = c.LastTerminationState.Terminated
		}
	}
	// The runtime could not start what is in the container, such as a command that does not exist.
	if ended != nil && (ended.Reason == string(edsv1.StatusReasonStartError) || ended.Reason == "ContainerCannotRun") {
		return edsv1.StatusReasonStartError, ended.Message
	}
	return "", ""
}

// Explain says why a pod is still in creation, by an Event.
func (l *PodState) Explain(reason, message string) { l.Message = withDetail(reason, message) }

// readResponse finds whether the scheduler or the kubelet acts on the pod.
func (l *PodState) readResponse(p *corev1.Pod, now time.Time) {
	since := p.CreationTimestamp.Add(unscheduledFor)
	if l.Terminating {
		// The timestamp is when the kubelet may kill the pod. The kubelet gets the same time again for that. leastResponse applies because the
		// kubelet sets the grace period to 0 when the pod has ended.
		grace := ptr.Deref(p.DeletionGracePeriodSeconds, corev1.DefaultTerminationGracePeriodSeconds)
		since = p.DeletionTimestamp.Add(max(time.Duration(grace)*time.Second, leastResponse))
	}
	l.Unresponsive = (l.Terminating || p.Spec.NodeName == "") && hasPassed(&l.Wake, since, now)
}

// problem says what else is wrong with a pod that is not ready.
func (l *PodState) problem(p *corev1.Pod) string {
	switch scheduled := podCondition(p, corev1.PodScheduled); {
	case l.Terminating:
		return ""
	case l.Failed:
		return withDetail("the pod has ended", joinParts(p.Status.Reason, p.Status.Message))
	case scheduled != nil && scheduled.Status == corev1.ConditionFalse:
		return withDetail("the pod is not scheduled", scheduled.Message)
	case l.Restarts > 0:
		return l.restartMessage()
	}
	return ""
}

// restartMessage says which container restarted, how often and why.
func (l *PodState) restartMessage() string {
	times := "1 time"
	if l.Restarts != 1 {
		times = fmt.Sprintf("%d times", l.Restarts)
	}
	return fmt.Sprintf("container %s has restarted %s, the last time with %s", l.RestartContainer, times, l.RestartReason)
}

// cannotStartMessage begins with the sentence that ExtendedDaemonSet writes, which its users search for.
func cannotStartMessage(pod string, reason edsv1.StatusReason, detail string) string {
	return "Pod " + pod + " cannot start with reason: " + string(reason) + ", " + detail
}

// hasPassed reports whether this time has come. If not, it sets wake to that time or earlier.
func hasPassed(wake *time.Time, at, now time.Time) bool {
	if !now.Before(at) {
		return true
	}
	*wake = rollout.Earlier(*wake, at)
	return false
}

func podCondition(p *corev1.Pod, kind corev1.PodConditionType) *corev1.PodCondition {
	return rollout.Find(p.Status.Conditions, func(c *corev1.PodCondition) bool { return c.Type == kind })
}

// withDetail adds the message of a kubelet or scheduler, on one line, and shortened if it is long.
func withDetail(message, detail string) string {
	detail = strings.Join(strings.Fields(detail), " ")
	if detail == "" {
		return message
	}
	return message + ": " + rollout.Shorten(detail, maxDetail)
}
