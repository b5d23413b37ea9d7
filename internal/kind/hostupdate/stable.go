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

	"moult.dev/moult/api/v1alpha1"
)

// Stable says why the pods of a node that was changed at since are not well in the sense of spec.health.pods; "" when they are.
// Next is when the answer can be another one though no pod has changed; zero if never. The words change only with the pods.
//
// A pod that has ended is not looked at, nor one that was told to go before the change: it is somebody else's leftover. One that was
// told to go after it is not well until it is gone.
func Stable(pods []corev1.Pod, want []v1alpha1.StablePods, since, now time.Time) (why string, next time.Time) {
	var ill []string
	var quiet time.Time
	for i := range want {
		selector, err := metav1.LabelSelectorAsSelector(&want[i].Selector)
		if err != nil {
			ill = append(ill, fmt.Sprintf("health.pods[%d] can't be understood: %v", i, err))
			continue
		}
		s := steady{StablePods: &want[i], selector: selector, since: since, now: now}
		for _, p := range byName(pods) {
			if !s.selects(p) {
				continue
			}
			switch said, until := s.judge(p); {
			case said == "":
			case until.IsZero():
				ill = append(ill, said)
			case until.After(quiet):
				quiet, why = until, said
			}
		}
	}
	switch len(ill) {
	case 0:
		return why, quiet
	case 1:
		return ill[0], time.Time{}
	default:
		return fmt.Sprintf("%s (and %d more)", ill[0], len(ill)-1), time.Time{}
	}
}

func byName(pods []corev1.Pod) []*corev1.Pod {
	sorted := make([]*corev1.Pod, len(pods))
	for i := range pods {
		sorted[i] = &pods[i]
	}
	slices.SortFunc(sorted, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return sorted
}

// steady looks at the pods of one entry of spec.health.pods.
type steady struct {
	*v1alpha1.StablePods

	selector   labels.Selector
	since, now time.Time
}

func (s *steady) selects(p *corev1.Pod) bool {
	if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		return false
	}
	if told, ok := toldToGo(p); ok && told.Before(s.since) {
		return false
	}
	return (s.Namespace == "" || s.Namespace == p.Namespace) && s.selector.Matches(labels.Set(p.Labels))
}

// judge says why a pod is not well, and, if only time is missing, until when.
func (s *steady) judge(p *corev1.Pod) (why string, until time.Time) {
	name := "pod " + p.Namespace + "/" + p.Name
	if _, ok := toldToGo(p); ok {
		return name + " is terminating", time.Time{}
	}
	if !ready(p) {
		return name + " is not ready", time.Time{}
	}
	from, container := s.since, ""
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if c.RestartCount > 0 && c.State.Running != nil && c.State.Running.StartedAt.After(from) {
			from, container = c.State.Running.StartedAt.Time, c.Name
		}
	}
	quiet := time.Duration(s.Seconds) * time.Second
	until = from.Add(quiet)
	if !s.now.Before(until) {
		return "", time.Time{}
	}
	if container != "" {
		return fmt.Sprintf("%s must run for %s, and its container %s restarted at %s", name, quiet, container, stamp(from)), until
	}
	return fmt.Sprintf("%s must run for %s, from the change at %s on", name, quiet, stamp(from)), until
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// toldToGo is when a pod was told to go. The deletion timestamp is the end of its grace period.
func toldToGo(p *corev1.Pod) (time.Time, bool) {
	if p.DeletionTimestamp.IsZero() {
		return time.Time{}, false
	}
	var grace int64
	if p.DeletionGracePeriodSeconds != nil {
		grace = *p.DeletionGracePeriodSeconds
	}
	return p.DeletionTimestamp.Add(-time.Duration(grace) * time.Second), true
}

func ready(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}
