// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// start is when the tests begin.
var start = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// pod makes a running pod of a ReplicaSet on node n1, an hour old, and changes it.
func pod(name string, change ...func(*corev1.Pod)) corev1.Pod {
	p := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "web", Name: name, UID: types.UID("uid-" + name),
			CreationTimestamp: metav1.NewTime(start.Add(-time.Hour)),
			OwnerReferences:   []metav1.OwnerReference{owner("apps/v1", "ReplicaSet", "rs")},
		},
		Spec:   corev1.PodSpec{NodeName: "n1"},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	for _, c := range change {
		c(&p)
	}
	return p
}

func owner(apiVersion, kind, name string) metav1.OwnerReference {
	yes := true
	return metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Name: name, UID: types.UID("uid-" + name), Controller: &yes}
}

func of(apiVersion, kind, name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.OwnerReferences = []metav1.OwnerReference{owner(apiVersion, kind, name)} }
}

func ofDaemonSet(p *corev1.Pod) { of("apps/v1", "DaemonSet", "ds")(p) }

func unowned(p *corev1.Pod) { p.OwnerReferences = nil }

func withEmptyDir(p *corev1.Pod) {
	p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{
		Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}},
	})
}

func inPhase(phase corev1.PodPhase) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.Phase = phase }
}

func static(p *corev1.Pod) {
	p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
	p.OwnerReferences = []metav1.OwnerReference{owner("v1", "Node", "n1")}
}

func labelled(key, value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Labels = map[string]string{key: value} }
}

func withPriority(n int32) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.Priority = &n }
}

// terminating makes the pod's grace period end at a time after start.
func terminating(at time.Duration) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		when, grace := metav1.NewTime(start.Add(at)), int64(30)
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &when, &grace
		p.Finalizers = []string{"moult.dev/test"} // A fake client keeps no terminating object without one.
	}
}

func made(at time.Duration) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(start.Add(at)) }
}

func tolerating(t corev1.Toleration) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.Tolerations = append(p.Spec.Tolerations, t) }
}
