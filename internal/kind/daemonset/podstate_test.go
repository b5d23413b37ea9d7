// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
)

// podOf is a pod on a node that has started well, an hour ago.
func podOf(change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "foo-x", CreationTimestamp: ago(time.Hour)},
		Spec:       corev1.PodSpec{NodeName: "node-1"},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning, StartTime: ptr.To(ago(time.Hour - 10*time.Second))},
	}
	for _, how := range change {
		how(p)
	}
	return p
}

func phase(of corev1.PodPhase) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.Phase = of }
}

func condition(of corev1.PodConditionType, status corev1.ConditionStatus, since time.Duration, message string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{
			Type: of, Status: status, LastTransitionTime: ago(since), Message: message,
		})
	}
}

func readyFor(d time.Duration) func(*corev1.Pod) {
	return condition(corev1.PodReady, corev1.ConditionTrue, d, "")
}

func notReady(p *corev1.Pod) {
	condition(corev1.PodReady, corev1.ConditionFalse, time.Hour, "containers with unready status: [app]")(p)
}

// container adds the status of a container that has restarted so often.
func container(name string, restarts int32, now, last corev1.ContainerState) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: name, RestartCount: restarts, State: now, LastTerminationState: last,
		})
	}
}

// initially moves the last container to the init containers.
func initially(p *corev1.Pod) {
	s := &p.Status
	end := len(s.ContainerStatuses) - 1
	s.InitContainerStatuses = append(s.InitContainerStatuses, s.ContainerStatuses[end])
	s.ContainerStatuses = s.ContainerStatuses[:end]
}

var nothing corev1.ContainerState

func waits(reason, message string) corev1.ContainerState {
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
}

func runs(since time.Duration) corev1.ContainerState {
	return corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: ago(since)}}
}

func terminated(reason string, started, finished time.Duration) corev1.ContainerState {
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		Reason: reason, Message: "as the runtime says", StartedAt: ago(started), FinishedAt: ago(finished),
	}}
}

func TestStateOfPodReadiness(t *testing.T) {
	since := now.Add(-time.Minute)
	for name, tc := range map[string]struct {
		pod      *corev1.Pod
		minReady time.Duration
		want     PodState
	}{
		"not a word":           {podOf(), 0, PodState{}},
		"not ready":            {podOf(notReady), 0, PodState{}},
		"ready":                {podOf(readyFor(time.Minute)), 0, PodState{Ready: true, Available: true, ReadySince: since}},
		"not for long enough":  {podOf(readyFor(time.Minute)), 61 * time.Second, PodState{Ready: true, ReadySince: since, Wake: now.Add(time.Second)}},
		"for just long enough": {podOf(readyFor(time.Minute)), time.Minute, PodState{Ready: true, Available: true, ReadySince: since}},
		"by a clock that is ahead": {
			podOf(readyFor(-time.Minute)), 0, PodState{Ready: true, Available: true, ReadySince: now.Add(time.Minute)},
		},
		"by a clock that is ahead, for a while": {
			podOf(readyFor(-time.Minute)), time.Minute, PodState{Ready: true, ReadySince: now.Add(time.Minute), Wake: now.Add(2 * time.Minute)},
		},
		"no one knows since when": {podOf(func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		}), time.Minute, PodState{Ready: true, Available: true}},
		"failed": {
			podOf(phase(corev1.PodFailed), notReady, func(p *corev1.Pod) { p.Status.Reason, p.Status.Message = "Evicted", "The node was low on\nmemory." }), 0,
			PodState{Failed: true, Message: "the pod has ended: Evicted: The node was low on memory."},
		},
		"ended without an error": {podOf(phase(corev1.PodSucceeded), notReady), 0, PodState{Failed: true, Message: "the pod has ended"}},
		"no one knows":           {podOf(phase(corev1.PodUnknown)), 0, PodState{}},
	} {
		if diff := cmp.Diff(tc.want, StateOfPod(tc.pod, tc.minReady, now)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestStateOfPodRestarts(t *testing.T) {
	at := func(d time.Duration) time.Time { return now.Add(-d) }
	const s = time.Second
	crashes := waits("CrashLoopBackOff", "back-off 40s restarting failed container=app pod=foo-x")
	type want struct {
		restarts        int32
		last            time.Time
		reason, message string
	}
	for name, tc := range map[string]struct {
		pod  *corev1.Pod
		want want
	}{
		"none":                        {podOf(container("app", 0, runs(time.Hour), nothing)), want{}},
		"it has ended, and not begun": {podOf(container("app", 0, crashes, terminated("Error", 60*s, 50*s))), want{}},
		"once, and it runs": {
			podOf(container("app", 1, runs(40*s), terminated("Error", 60*s, 50*s))),
			want{1, at(40 * s), "Error", "container app has restarted 1 time, the last time with Error"},
		},
		"it waits to restart": {
			podOf(container("app", 3, crashes, terminated("OOMKilled", 60*s, 50*s))),
			want{3, at(50 * s), "OOMKilled", "container app has restarted 3 times, the last time with OOMKilled"},
		},
		"it has ended just now": {
			podOf(container("app", 3, terminated("Error", 30*s, 5*s), terminated("OOMKilled", 60*s, 50*s))),
			want{3, at(30 * s), "OOMKilled", "container app has restarted 3 times, the last time with OOMKilled"},
		},
		"with an end without a reason": {
			podOf(container("app", 3, crashes, terminated("", 60*s, 50*s))),
			want{3, at(50 * s), "Unknown", "container app has restarted 3 times, the last time with Unknown"},
		},
		"no one knows when or why": {
			podOf(container("app", 1, corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}, nothing)),
			want{1, time.Time{}, "Unknown", "container app has restarted 1 time, the last time with Unknown"},
		},
		"since 1970": {
			podOf(container("app", 1, nothing, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{FinishedAt: metav1.Unix(0, 0)}})),
			want{1, time.Time{}, "Unknown", "container app has restarted 1 time, the last time with Unknown"},
		},
		"most of one, last of another": {
			podOf(container("app", 2, runs(40*s), terminated("Error", 60*s, 50*s)), container("side", 1, runs(20*s), terminated("OOMKilled", 60*s, 30*s))),
			want{2, at(20 * s), "Error", "container app has restarted 2 times, the last time with Error"},
		},
		"the first of two": {
			podOf(container("app", 2, runs(40*s), terminated("Error", 60*s, 50*s)), container("side", 2, runs(20*s), terminated("OOMKilled", 60*s, 30*s))),
			want{2, at(20 * s), "Error", "container app has restarted 2 times, the last time with Error"},
		},
		"an init container that got through": {
			podOf(container("setup", 2, terminated("Completed", 40*s, 30*s), terminated("Error", 60*s, 50*s)), initially, container("app", 0, runs(25*s), nothing)),
			want{2, at(40 * s), "Error", "container setup has restarted 2 times, the last time with Error"},
		},
		"ready again": {
			podOf(container("app", 1, runs(40*s), terminated("Error", 60*s, 50*s)), readyFor(30*s)),
			want{1, at(40 * s), "Error", ""},
		},
	} {
		l := StateOfPod(tc.pod, 0, now)
		if got := (want{l.Restarts, l.LastRestart, string(l.RestartReason), l.Message}); got != tc.want {
			t.Errorf("%s: got %v, want %v", name, got, tc.want)
		}
	}
}

func TestStateOfPodLost(t *testing.T) {
	gone := func(reason string, code int32) corev1.ContainerState {
		s := terminated(reason, time.Hour, time.Minute)
		s.Terminated.ExitCode = code
		return s
	}
	for name, tc := range map[string]struct {
		pod  *corev1.Pod
		want bool
	}{
		"no restart":                      {podOf(container("app", 0, runs(time.Hour), nothing)), false},
		"it crashed":                      {podOf(container("app", 1, runs(time.Minute), gone("Error", 255))), false},
		"with its machine":                {podOf(container("app", 1, runs(time.Minute), gone("Unknown", 255))), true},
		"the kubelet has lost it":         {podOf(container("app", 1, runs(time.Minute), gone("ContainerStatusUnknown", 137))), true},
		"it says so itself":               {podOf(container("app", 1, runs(time.Minute), gone("Unknown", 1))), false},
		"another restarts more":           {podOf(container("app", 1, runs(time.Minute), gone("Unknown", 255)), container("side", 2, runs(time.Minute), gone("Error", 1))), false},
		"no one knows that it ended ever": {podOf(container("app", 1, runs(time.Minute), nothing)), false},
	} {
		if l := StateOfPod(tc.pod, 0, now); l.Lost != tc.want {
			t.Errorf("%s: got %t", name, l.Lost)
		}
	}
}

func TestStateOfPodStart(t *testing.T) {
	const s = time.Second
	started, made := now.Add(-time.Hour+10*s), now.Add(-time.Hour)
	pending := phase(corev1.PodPending)
	creating := waits("ContainerCreating", "")
	initializing := container("app", 0, waits("PodInitializing", ""), nothing)
	crashes := waits("CrashLoopBackOff", "back-off 40s restarting failed container=app pod=foo-x")
	bad := waits("ErrImagePull", "not found")
	unscheduled := func(p *corev1.Pod) {
		p.Spec.NodeName, p.Status.StartTime, p.CreationTimestamp = "", nil, ago(time.Minute)
	}
	for name, tc := range map[string]struct {
		pod      *corev1.Pod
		reason   edsv1.StatusReason
		creating time.Time
		message  string
	}{
		"it runs":                     {podOf(container("app", 0, runs(time.Minute), nothing)), "", time.Time{}, ""},
		"no kubelet has seen it":      {podOf(pending, func(p *corev1.Pod) { p.Status.StartTime = nil }), "", made, ""},
		"no one has seen it":          {podOf(phase(""), func(p *corev1.Pod) { p.Status.StartTime = nil }), "", made, ""},
		"its containers are created":  {podOf(pending, container("app", 0, creating, nothing)), "", started, ""},
		"its init containers run":     {podOf(pending, container("setup", 0, runs(s), nothing), initially, initializing), "", started, ""},
		"a container is started anew": {podOf(container("app", 1, runs(s), terminated("Error", 3*s, 2*s)), readyFor(s)), "", time.Time{}, ""},
		"a node for it is sought": {
			podOf(pending, unscheduled, condition(corev1.PodScheduled, corev1.ConditionFalse, s, "0/3 nodes are available")),
			"", now.Add(-time.Minute), "the pod is not scheduled: 0/3 nodes are available",
		},
		"no such ConfigMap": {
			podOf(pending, container("app", 0, waits("CreateContainerConfigError", `configmap "gone" not found`), nothing)),
			"CreateContainerConfigError", started, `container app can't start, CreateContainerConfigError: configmap "gone" not found`,
		},
		"without a word": {
			podOf(pending, container("app", 0, waits("ErrImageNeverPull", ""), nothing)),
			"ErrImageNeverPull", started, "container app can't start, ErrImageNeverPull",
		},
		"no such command": {
			podOf(container("app", 0, waits("RunContainerError", "exec: nope: not found"), terminated("StartError", s, s))),
			"StartError", started, "container app can't start, StartError: exec: nope: not found",
		},
		"no such command, later": {
			podOf(container("app", 2, crashes, terminated("StartError", 9*s, 8*s))),
			"StartError", started, "container app can't start, StartError: as the runtime says",
		},
		"no such command, as other runtimes say": {
			podOf(container("app", 2, crashes, terminated("ContainerCannotRun", 9*s, 8*s))),
			"StartError", started, "container app can't start, StartError: as the runtime says",
		},
		"no such command, between two attempts": {
			podOf(container("app", 2, terminated("StartError", 9*s, 8*s), nothing)),
			"StartError", started, "container app can't start, StartError: as the runtime says",
		},
		"no such command, once": {podOf(container("app", 2, runs(s), terminated("StartError", 9*s, 8*s)), readyFor(s)), "", time.Time{}, ""},
		"it crashes": {
			podOf(container("app", 2, crashes, terminated("Error", 9*s, 8*s))),
			"", time.Time{}, "container app has restarted 2 times, the last time with Error",
		},
		"an init container": {
			podOf(pending, container("setup", 0, bad, nothing), initially, initializing),
			"ErrImagePull", started, "container setup can't start, ErrImagePull: not found",
		},
		"an init container crashes": {
			podOf(pending, container("setup", 1, crashes, terminated("Error", 9*s, 8*s)), initially, initializing),
			"", started, "container setup has restarted 1 time, the last time with Error",
		},
		"the first of two": {
			podOf(pending, container("app", 0, runs(time.Minute), nothing), container("side", 0, bad, nothing), container("last", 0, waits("InvalidImageName", ""), nothing)),
			"ErrImagePull", started, "container side can't start, ErrImagePull: not found",
		},
		"it ran a while ago":        {podOf(container("app", 1, bad, terminated("Error", 9*s, 8*s))), "ErrImagePull", started, "container app can't start, ErrImagePull: not found"},
		"it failed":                 {podOf(phase(corev1.PodFailed), container("app", 1, terminated("StartError", 9*s, 8*s), nothing)), "", time.Time{}, "the pod has ended"},
		"it is deleted before":      {podOf(pending, container("app", 0, bad, nothing), func(p *corev1.Pod) { p.DeletionTimestamp = ptr.To(ago(0)) }), "", time.Time{}, ""},
		"the node has lost contact": {podOf(container("app", 0, creating, terminated("ContainerStatusUnknown", 0, 0))), "", time.Time{}, ""},
	} {
		l := StateOfPod(tc.pod, 0, now)
		if l.CannotStart != tc.reason || !l.Creating.Equal(tc.creating) || l.Message != tc.message {
			t.Errorf("%s: got %q since %s, %q; want %q since %s, %q", name, l.CannotStart, l.Creating, l.Message, tc.reason, tc.creating, tc.message)
		}
	}
}

// TestStateOfPodReasons knows every reason of the kubelet for which a container waits and will go on waiting.
func TestStateOfPodReasons(t *testing.T) {
	for reason, want := range map[string]edsv1.StatusReason{
		"ErrImagePull":               "ErrImagePull",
		"ImagePullBackOff":           "ImagePullBackOff",
		"ImageInspectError":          "ImageInspectError",
		"ErrImageNeverPull":          "ErrImageNeverPull",
		"RegistryUnavailable":        "RegistryUnavailable",
		"InvalidImageName":           "InvalidImageName",
		"SignatureValidationFailed":  "SignatureValidationFailed",
		"ImageVolumeMountFailed":     "ImageVolumeMountFailed",
		"CreateContainerConfigError": "CreateContainerConfigError",
		"CreateContainerError":       "CreateContainerError",
		"PreCreateHookError":         "PreCreateHookError",
		"PreStartHookError":          "PreStartHookError",
		"PostStartHookError":         "PostStartHookError",
		"StartError":                 edsv1.StatusReasonStartError,
		"RunContainerError":          edsv1.StatusReasonStartError,
		"CrashLoopBackOff":           "",
		"ContainerCreating":          "",
		"PodInitializing":            "",
		"":                           "",
	} {
		if got := StateOfPod(podOf(container("app", 0, waits(reason, ""), nothing)), 0, now).CannotStart; got != want {
			t.Errorf("%s: got %q, want %q", reason, got, want)
		}
	}
}

func TestStateOfPodResponse(t *testing.T) {
	unscheduled := func(d time.Duration) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.NodeName, p.Status.StartTime, p.Status.Phase, p.CreationTimestamp = "", nil, corev1.PodPending, ago(d)
		}
	}
	deleted := func(until time.Duration, grace *int64) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.DeletionTimestamp, p.DeletionGracePeriodSeconds = ptr.To(ago(until)), grace }
	}
	for name, tc := range map[string]struct {
		pod          *corev1.Pod
		terminating  bool
		unresponsive bool
		wake         time.Duration
	}{
		"scheduled":                      {podOf(), false, false, 0},
		"not scheduled":                  {podOf(unscheduled(9 * time.Minute)), false, false, time.Minute},
		"not scheduled for too long":     {podOf(unscheduled(10 * time.Minute)), false, true, 0},
		"it may end in peace":            {podOf(deleted(-20*time.Second, ptr.To(int64(30)))), true, false, 50 * time.Second},
		"it is being killed":             {podOf(deleted(20*time.Second, ptr.To(int64(30)))), true, false, 10 * time.Second},
		"it does not go":                 {podOf(deleted(30*time.Second, ptr.To(int64(30)))), true, true, 0},
		"its kubelet has just let it go": {podOf(deleted(2*time.Second, ptr.To(int64(0)))), true, false, 8 * time.Second},
		"it does not go at once":         {podOf(deleted(10*time.Second, ptr.To(int64(0)))), true, true, 0},
		"no one knows for how long":      {podOf(deleted(29*time.Second, nil)), true, false, time.Second},
		"the sooner of two":              {podOf(unscheduled(9*time.Minute), deleted(-10*time.Second, ptr.To(int64(10)))), true, false, 20 * time.Second},
	} {
		l := StateOfPod(tc.pod, 0, now)
		var wake time.Time
		if tc.wake > 0 {
			wake = now.Add(tc.wake)
		}
		if l.Terminating != tc.terminating || l.Unresponsive != tc.unresponsive || !l.Wake.Equal(wake) {
			t.Errorf("%s: got %t, %t, wake %s; want %t, %t, wake %s", name, l.Terminating, l.Unresponsive, l.Wake, tc.terminating, tc.unresponsive, wake)
		}
	}
}

// TestStateOfPodDetail quotes a kubelet on one line, and not at any length.
func TestStateOfPodDetail(t *testing.T) {
	long := strings.Repeat("ä", 400)
	l := StateOfPod(podOf(container("app", 0, waits("ErrImagePull", "so:\n\t"+long), nothing)), 0, now)
	want := "container app can't start, ErrImagePull: so: " + strings.Repeat("ä", 146) + "…"
	if l.Message != want {
		t.Errorf("got %d bytes: %s", len(l.Message), l.Message)
	}
}

// TestStateOfPodWake finds a pod the same until the state wakes, and another then.
func TestStateOfPodWake(t *testing.T) {
	r := rand.New(rand.NewPCG(seedOf(t), 0))
	for range 1000 {
		p := podOf(condition(corev1.PodReady, corev1.ConditionStatus([]string{"True", "False"}[r.IntN(2)]), time.Duration(r.IntN(100))*time.Second, ""))
		if r.IntN(3) == 0 {
			p.Spec.NodeName, p.CreationTimestamp = "", ago(time.Duration(r.IntN(700))*time.Second)
		}
		if r.IntN(3) == 0 {
			p.DeletionTimestamp, p.DeletionGracePeriodSeconds = ptr.To(ago(time.Duration(r.IntN(100)-50)*time.Second)), ptr.To(r.Int64N(60))
		}
		minReady := time.Duration(r.IntN(100)) * time.Second
		l := StateOfPod(p, minReady, now)
		if l.Wake.IsZero() {
			if diff := cmp.Diff(l, StateOfPod(p, minReady, now.AddDate(1, 0, 0))); diff != "" {
				t.Fatalf("it changes, and no one wakes (-now +later):\n%s", diff)
			}
			continue
		}
		if diff := cmp.Diff(l, StateOfPod(p, minReady, l.Wake.Add(-1))); diff != "" || !l.Wake.After(now) {
			t.Fatalf("it changes before %s (-now +later):\n%s", l.Wake, diff)
		}
		then := StateOfPod(p, minReady, l.Wake)
		if then.Wake = l.Wake; cmp.Equal(l, then) {
			t.Fatalf("nothing changes at %s: %+v", l.Wake, l)
		}
	}
}
