// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
)

const (
	// unscheduledFor is for how long a pod may be without a node.
	unscheduledFor = 10 * time.Minute
	// maxDetail bounds what is quoted of a kubelet's or scheduler's message, in bytes.
	maxDetail = 300
)

// Look is what state a daemon pod is in.
type Look struct {
	// Ready is its condition of that name. Available is that it has been ready for long enough.
	Ready, Available bool
	// Terminating is that it was deleted, and is not gone yet.
	Terminating bool
	// Failed is that it has ended, with an error or without, and nothing starts it again. A pod that is Terminating may be so, too,
	// shortly before it is gone.
	Failed bool
	// Running is its phase: all its containers have started at least once.
	Running bool
	// ReadySince is when it became ready; zero when it is not.
	ReadySince time.Time
	// Wake is when the clock alone changes any of this; zero: never.
	Wake time.Time
	// Restarts is those of the container that has most, RestartContainer, without those that were Excused. Init containers and ephemeral
	// ones count.
	Restarts         int32
	RestartContainer string
	// RestartReason is why that container ended the last time, as the kubelet says; empty without restarts.
	RestartReason edsv1.StatusReason
	// Lost is that the container that has restarted most, excused or not, ended unseen the last time: its machine, or the container
	// runtime, went down.
	Lost bool
	// LastRestart is when any container restarted, or ended before a restart, the last time; zero without restarts, or when unknown.
	LastRestart time.Time
	// CannotStart is what keeps a container from being started that does not pass by itself; empty when nothing does. That of an
	// ephemeral container is no matter of the daemon.
	CannotStart edsv1.StatusReason
	// Message says to people what is wrong with the pod; empty when nothing is known to be.
	Message string
	// Creating is since when it is being started, or ought to be: by its node when it has come there, else by the scheduler; zero
	// when all its containers have started.
	Creating time.Time
	// Unresponsive is that nothing on its node reacts to it: it was not scheduled for 10 minutes, or was to be gone a whole grace
	// period ago, and 10 seconds at least.
	Unresponsive bool
}

// LookAt sees what state a pod is in. It is available when it has been ready for minReady.
func LookAt(p *corev1.Pod, minReady time.Duration, now time.Time) Look {
	l := Look{
		Terminating: p.DeletionTimestamp != nil,
		Failed:      p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded,
		Running:     p.Status.Phase == corev1.PodRunning,
	}
	l.readiness(p, minReady, now)
	l.restarts(p)
	l.start(p)
	l.response(p, now)
	if l.Message == "" && !l.Ready {
		l.Message = l.trouble(p)
	}
	return l
}

// readiness tells since when the pod is ready, and whether that is long enough.
func (l *Look) readiness(p *corev1.Pod, minReady time.Duration, now time.Time) {
	c := podCondition(p, corev1.PodReady)
	if c == nil || c.Status != corev1.ConditionTrue {
		return
	}
	l.Ready, l.ReadySince = true, c.LastTransitionTime.Time
	// Without a minimum the clocks of node and controller do not matter.
	l.Available = minReady <= 0 || l.passed(l.ReadySince.Add(minReady), now)
}

// restarts tells how often and when containers restarted.
func (l *Look) restarts(p *corev1.Pod) {
	excused, most := excusedRestarts(p), int32(0)
	for _, list := range statuses(p) {
		for i := range list {
			c := &list[i]
			if c.RestartCount == 0 {
				continue
			}
			if at := lastRestart(c); at.After(l.LastRestart) {
				l.LastRestart = at
			}
			if c.RestartCount > most {
				most, l.Lost = c.RestartCount, lost(c)
			}
			if n := c.RestartCount - excused[c.Name]; n > l.Restarts {
				l.Restarts, l.RestartContainer, l.RestartReason = n, c.Name, restartReason(c)
			}
		}
	}
}

func statuses(p *corev1.Pod) [][]corev1.ContainerStatus {
	return [][]corev1.ContainerStatus{p.Status.ContainerStatuses, p.Status.InitContainerStatuses, p.Status.EphemeralContainerStatuses}
}

// Excuse is what the annotation of a pod is to say so that its restarts up to now don't count any more; "" when it has none, or says that
// already. What can't be read excuses nothing.
func Excuse(p *corev1.Pod) string {
	all := map[string]int32{}
	for _, list := range statuses(p) {
		for i := range list {
			if n := list[i].RestartCount; n > 0 {
				all[list[i].Name] = n
			}
		}
	}
	if maps.Equal(all, excusedRestarts(p)) {
		return ""
	}
	text, err := json.Marshal(all)
	if err != nil || len(all) == 0 {
		return ""
	}
	return string(text)
}

// excusedRestarts are those that don't count, by container.
func excusedRestarts(p *corev1.Pod) map[string]int32 {
	text, ok := p.Annotations[edsv1.AnnotationExcusedRestarts]
	if !ok {
		return nil
	}
	var all map[string]int32
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		return nil
	}
	return all
}

// lastRestart is when a container that has restarted did so, or ended to do so again.
func lastRestart(c *corev1.ContainerStatus) time.Time {
	var last time.Time
	see := func(at metav1.Time) {
		// A container that could not be started says 1970.
		if at.Unix() > 0 && at.After(last) {
			last = at.Time
		}
	}
	if t := c.LastTerminationState.Terminated; t != nil {
		see(t.FinishedAt)
	}
	if r := c.State.Running; r != nil {
		see(r.StartedAt)
	}
	// An init container may have ended for good: that is no restart, but its start was one.
	if t := c.State.Terminated; t != nil {
		see(t.StartedAt)
	}
	return last
}

// restartReason is why a container ended the last time.
func restartReason(c *corev1.ContainerStatus) edsv1.StatusReason {
	switch last, now, waiting := c.LastTerminationState.Terminated, c.State.Terminated, c.State.Waiting; {
	case last != nil && last.Reason != "":
		return edsv1.StatusReason(last.Reason)
	case now != nil && now.Reason != "":
		return edsv1.StatusReason(now.Reason)
	case waiting != nil && waiting.Reason == string(edsv1.StatusReasonCLB):
		return edsv1.StatusReasonCLB
	}
	return edsv1.StatusReasonUnknown
}

// lost reports whether a container was gone when the container runtime, or the kubelet, came back: then they make up how it ended.
func lost(c *corev1.ContainerStatus) bool {
	t := c.LastTerminationState.Terminated
	return t != nil && (t.Reason == "Unknown" && t.ExitCode == 255 || t.Reason == "ContainerStatusUnknown")
}

// start tells whether the pod is being started, and what keeps it from that.
func (l *Look) start(p *corev1.Pod) {
	if l.Terminating || l.Failed {
		return
	}
	for _, list := range [][]corev1.ContainerStatus{p.Status.ContainerStatuses, p.Status.InitContainerStatuses} {
		for i := range list {
			if reason, detail := cannotStart(&list[i]); reason != "" && l.CannotStart == "" {
				l.CannotStart = reason
				l.Message = withDetail(fmt.Sprintf("container %s can't start, %s", list[i].Name, reason), detail)
			}
		}
	}
	if l.CannotStart == "" && p.Status.Phase != corev1.PodPending && p.Status.Phase != "" {
		return
	}
	l.Creating = p.CreationTimestamp.Time
	if t := p.Status.StartTime; t != nil {
		l.Creating = t.Time
	}
}

// cannotStart is what keeps a container from being started, and what the kubelet has to say to it.
func cannotStart(c *corev1.ContainerStatus) (reason edsv1.StatusReason, detail string) {
	if w := c.State.Waiting; w != nil {
		switch edsv1.StatusReason(w.Reason) {
		case edsv1.StatusReasonErrImagePull, edsv1.StatusReasonImagePullBackOff, edsv1.StatusReasonImageInspectError,
			edsv1.StatusReasonErrImageNeverPull, edsv1.StatusReasonRegistryUnavailable, edsv1.StatusReasonInvalidImageName,
			edsv1.StatusReasonCreateContainerConfigError, edsv1.StatusReasonCreateContainerError, edsv1.StatusReasonPreStartHookError,
			edsv1.StatusReasonPostStartHookError, edsv1.StatusReasonPreCreateHookError, edsv1.StatusReasonStartError,
			"SignatureValidationFailed", "ImageVolumeMountFailed":
			return edsv1.StatusReason(w.Reason), w.Message
		case "RunContainerError":
			return edsv1.StatusReasonStartError, w.Message
		case edsv1.StatusReasonCLB:
			// The kubelet waits before it tries again what the runtime could not do.
			return neverRan(c.LastTerminationState.Terminated)
		}
	}
	return neverRan(c.State.Terminated)
}

// neverRan is that a container ended as the runtime could not start what is in it, such as a command that is not there.
func neverRan(t *corev1.ContainerStateTerminated) (reason edsv1.StatusReason, detail string) {
	if t != nil && (t.Reason == string(edsv1.StatusReasonStartError) || t.Reason == "ContainerCannotRun") {
		return edsv1.StatusReasonStartError, t.Message
	}
	return "", ""
}

// leastResponse is how long after the end of its grace period a pod may be there at the least.
const leastResponse = 10 * time.Second

// response finds whether the scheduler or the kubelet reacts to the pod.
func (l *Look) response(p *corev1.Pod, now time.Time) {
	var since time.Time
	if p.Spec.NodeName == "" {
		since = p.CreationTimestamp.Add(unscheduledFor)
	}
	if p.DeletionTimestamp != nil {
		grace := int64(corev1.DefaultTerminationGracePeriodSeconds)
		if p.DeletionGracePeriodSeconds != nil {
			grace = *p.DeletionGracePeriodSeconds
		}
		// The timestamp is when the kubelet may kill it. It gets as long again to do so, and a moment at least: with its last word, that the
		// pod has ended, it sets the grace period to 0.
		if at := p.DeletionTimestamp.Add(max(time.Duration(grace)*time.Second, leastResponse)); since.IsZero() || at.Before(since) {
			since = at
		}
	}
	l.Unresponsive = !since.IsZero() && l.passed(since, now)
}

// trouble says what else is wrong with a pod that is not ready.
func (l *Look) trouble(p *corev1.Pod) string {
	switch scheduled := podCondition(p, corev1.PodScheduled); {
	case l.Terminating:
		return ""
	case l.Failed && p.Status.Reason != "":
		return withDetail("the pod has ended, "+p.Status.Reason, p.Status.Message)
	case l.Failed:
		return withDetail("the pod has ended", p.Status.Message)
	case scheduled != nil && scheduled.Status == corev1.ConditionFalse:
		return withDetail("the pod is not scheduled", scheduled.Message)
	case l.Restarts > 0:
		return l.restarted()
	}
	return ""
}

// restarted says which container restarted, how often and why.
func (l *Look) restarted() string {
	times := "1 time"
	if l.Restarts != 1 {
		times = fmt.Sprintf("%d times", l.Restarts)
	}
	return fmt.Sprintf("container %s has restarted %s, the last time with %s", l.RestartContainer, times, cmp.Or(l.RestartReason, edsv1.StatusReasonUnknown))
}

// passed reports whether an instant has come. If not, the look changes then.
func (l *Look) passed(at, now time.Time) bool { return passed(&l.Wake, at, now) }

// passed reports whether an instant has come, and if not, that wake may not be later.
func passed(wake *time.Time, at, now time.Time) bool {
	if !now.Before(at) {
		return true
	}
	if wake.IsZero() || at.Before(*wake) {
		*wake = at
	}
	return false
}

func podCondition(p *corev1.Pod, of corev1.PodConditionType) *corev1.PodCondition {
	for i := range p.Status.Conditions {
		if p.Status.Conditions[i].Type == of {
			return &p.Status.Conditions[i]
		}
	}
	return nil
}

// withDetail adds what a program of the node says, on one line, and not all of it if it is long.
func withDetail(message, detail string) string {
	detail = strings.Join(strings.Fields(detail), " ")
	if detail == "" {
		return message
	}
	if len(detail) > maxDetail {
		end := maxDetail - len("…")
		for !utf8.RuneStart(detail[end]) {
			end--
		}
		detail = detail[:end] + "…"
	}
	return message + ": " + detail
}
