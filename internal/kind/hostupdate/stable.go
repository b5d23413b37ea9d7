// SPDX-License-Identifier: Apache-2.0

package hostupdate

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"moult.dev/moult/api/v1alpha1"
)

// Stable says why a pod on a node that changed at since does not meet spec.health.pods; "" when all pods do. next is when the clock alone can
// change the answer, or zero. The text changes only with the pods.
//
// Pods that have ended, and pods that were deleted before the change, do not count. A pod that was deleted after the change is not stable
// until the pod is gone.
func Stable(pods []corev1.Pod, want []v1alpha1.StablePods, since, now time.Time) (why string, next time.Time) {
	sorted := slices.SortedFunc(slices.Values(pods), func(a, b corev1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	for i := range want {
		selector, err := metav1.LabelSelectorAsSelector(&want[i].Selector)
		if err != nil {
			return fmt.Sprintf("health.pods[%d] can't be understood: %v", i, err), time.Time{}
		}
		for j := range sorted {
			p := &sorted[j]
			ended := p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
			deleted := deletedAt(p)
			if ended || !deleted.IsZero() && deleted.Before(since) || want[i].Namespace != "" && want[i].Namespace != p.Namespace ||
				!selector.Matches(labels.Set(p.Labels)) {
				continue
			}
			switch unwell, until := podUnwell(p, time.Duration(want[i].Seconds)*time.Second, since, now); {
			case unwell == "":
			case until.IsZero():
				return unwell, time.Time{}
			case until.After(next):
				why, next = unwell, until
			}
		}
	}
	return why, next
}

// podUnwell says why a pod has not run stably for this long since the change. If it only needs more time, until is the end of that time.
func podUnwell(p *corev1.Pod, least time.Duration, since, now time.Time) (why string, until time.Time) {
	name := "pod " + p.Namespace + "/" + p.Name
	switch {
	case !deletedAt(p).IsZero():
		return name + " is terminating", time.Time{}
	case !slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	}):
		return name + " is not ready", time.Time{}
	}
	from, what := since, "from the change at %s on"
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if c.RestartCount > 0 && c.State.Running != nil && c.State.Running.StartedAt.After(from) {
			from, what = c.State.Running.StartedAt.Time, "and its container "+c.Name+" restarted at %s"
		}
	}
	if until = from.Add(least); !now.Before(until) {
		return "", time.Time{}
	}
	return fmt.Sprintf("%s must run for %s, "+what, name, least, from.UTC().Format(time.RFC3339)), until
}

// deletedAt is when a pod was deleted, or zero: its deletion timestamp is the end of its grace period.
func deletedAt(p *corev1.Pod) time.Time {
	if p.DeletionTimestamp.IsZero() {
		return time.Time{}
	}
	return p.DeletionTimestamp.Add(-time.Duration(ptr.Deref(p.DeletionGracePeriodSeconds, 0)) * time.Second)
}
