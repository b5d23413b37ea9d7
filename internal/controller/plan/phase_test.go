// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/kind/nodeturn"
	"moult.dev/moult/internal/kind/plan"
	"moult.dev/moult/internal/rollout"
)

func running(name string, since metav1.Time) corev1.ContainerStatus {
	return corev1.ContainerStatus{Name: name, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: since}}}
}

func terminated(name string, since metav1.Time) corev1.ContainerStatus {
	return corev1.ContainerStatus{Name: name, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{StartedAt: since}}}
}

func waits(name, reason, message string) corev1.ContainerStatus {
	return corev1.ContainerStatus{Name: name, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}}
}

func TestPhase(t *testing.T) {
	since := ago(10 * time.Minute)
	later := ago(time.Minute)
	pod := func(initial, main []corev1.ContainerStatus, conditions ...corev1.PodCondition) *corev1.Pod {
		return &corev1.Pod{Status: corev1.PodStatus{InitContainerStatuses: initial, ContainerStatuses: main, Conditions: conditions}}
	}
	list := func(all ...corev1.ContainerStatus) []corev1.ContainerStatus { return all }
	job := func(change ...func(*batchv1.Job)) *batchv1.Job {
		j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "job-1", CreationTimestamp: ago(5 * time.Second)}}
		for _, how := range change {
			how(j)
		}
		return j
	}
	blank := waits("upgrade", "PodInitializing", "")
	for name, tc := range map[string]struct {
		turn    plan.Unit
		phase   v1alpha1.Phase
		since   metav1.Time
		message string
	}{
		"soaking":                    {plan.Unit{Turn: nodeturn.Turn{Unit: rollout.Unit{State: v1alpha1.UnitSoaking}}, Job: job()}, v1alpha1.PhaseSoaking, since, ""},
		"being stopped":              {plan.Unit{Turn: nodeturn.Turn{Step: plan.StepStop}, Job: job()}, v1alpha1.PhaseReplacing, since, "what ran on the node is being stopped"},
		"being deleted":              {plan.Unit{Job: job(deleted)}, v1alpha1.PhaseReplacing, since, "what ran on the node is being stopped"},
		"claimed":                    {plan.Unit{}, v1alpha1.PhaseClaimed, since, ""},
		"claimed, and refused":       {plan.Unit{Turn: nodeturn.Turn{Unit: rollout.Unit{Message: "its Job can't be created: no"}}}, v1alpha1.PhaseClaimed, since, "its Job can't be created: no"},
		"without a pod":              {plan.Unit{Job: job()}, v1alpha1.PhaseStarting, since, ""},
		"without a pod any more":     {plan.Unit{Job: job(func(j *batchv1.Job) { j.Status.Active = 1 })}, v1alpha1.PhaseChanging, since, ""},
		"between two attempts":       {plan.Unit{Job: job(func(j *batchv1.Job) { j.Status.Failed = 2 })}, v1alpha1.PhaseStarting, since, "failed attempts so far: 2"},
		"without a pod for too long": {plan.Unit{Job: job(created(ago(10 * time.Second)))}, v1alpha1.PhaseStarting, since, "its Job has no pod: kubectl describe job -n system-upgrade job-1 shows why"},
		"with a new pod":             {plan.Unit{Job: job(), Pod: pod(nil, nil)}, v1alpha1.PhaseStarting, since, ""},
		"with a pod that is pulled":  {plan.Unit{Job: job(), Pod: pod(list(waits("drain", "ContainerCreating", "")), list(blank))}, v1alpha1.PhaseStarting, since, ""},
		"unschedulable": {plan.Unit{Job: job(), Pod: pod(nil, nil, corev1.PodCondition{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/3 nodes are available",
		})}, v1alpha1.PhaseStarting, since, "Unschedulable: 0/3 nodes are available"},
		"scheduled": {plan.Unit{Job: job(), Pod: pod(nil, nil, corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, Reason: "x"})}, v1alpha1.PhaseStarting, since, ""},
		"preparing": {plan.Unit{Job: job(), Pod: pod(list(running("prepare", later), waits("drain", "PodInitializing", "")), list(blank))}, v1alpha1.PhasePreparing, later, ""},
		"draining":  {plan.Unit{Job: job(), Pod: pod(list(terminated("prepare", since), running("drain", later)), list(blank))}, v1alpha1.PhaseDraining, later, ""},
		"draining, and held up": {
			plan.Unit{Turn: nodeturn.Turn{Message: "2 pods left"}, Job: job(), Pod: pod(list(running("drain", later)), list(blank))}, v1alpha1.PhaseDraining, later, "2 pods left",
		},
		"cordoning":                              {plan.Unit{Job: job(), Pod: pod(list(running("cordon", later)), list(blank))}, v1alpha1.PhaseDraining, later, ""},
		"changing":                               {plan.Unit{Job: job(), Pod: pod(list(terminated("drain", since)), list(running("upgrade", later)))}, v1alpha1.PhaseChanging, later, ""},
		"changed, and the Job does not know yet": {plan.Unit{Job: job(), Pod: pod(list(terminated("drain", since)), list(terminated("upgrade", later)))}, v1alpha1.PhaseChanging, later, ""},
		"the image of the drain is missing": {
			plan.Unit{Job: job(), Pod: pod(list(terminated("prepare", since), waits("drain", "ErrImagePull", "not found")), list(blank))},
			v1alpha1.PhaseStarting, since, "container drain waits: ErrImagePull: not found",
		},
		"the image is missing": {
			plan.Unit{Job: job(), Pod: pod(list(terminated("drain", since)), list(waits("upgrade", "ImagePullBackOff", "")))},
			v1alpha1.PhaseStarting, since, "container upgrade waits: ImagePullBackOff",
		},
	} {
		tc.turn.Unit.Since, tc.turn.Node = since.Time, newNode("node-1")
		phase, at, message := tc.turn.Phase(now)
		if phase != tc.phase || !at.Equal(tc.since.Time) || message != tc.message {
			t.Errorf("%s: got %s, %s, %q; want %s, %s, %q", name, phase, at, message, tc.phase, tc.since, tc.message)
		}
	}
}
