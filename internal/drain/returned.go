// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"slices"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
)

// settle is how long after the beginning of a drain a pod that a cordon keeps away can still arrive, because the
// scheduler had not seen the cordon.
const settle = 30 * time.Second

// returned skips pods that were made after the drain began and that a cordon does not keep away: evicted, they would be
// back, and the drain would never end. A pod that has merely slipped past a fresh cordon goes with the others.
func returned(pod *corev1.Pod, f *Facts, _ *Options) ruling {
	made := pod.CreationTimestamp.Time
	if f.Since.IsZero() || made.Before(f.Since) {
		return ruling{}
	}
	if made.Before(f.Since.Add(settle)) && !toleratesCordon(pod) {
		return ruling{}
	}
	return ruling{Skip, ReasonReturned, "came after the drain began"}
}

func toleratesCordon(pod *corev1.Pod) bool {
	cordon := corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}
	return slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool {
		return t.ToleratesTaint(logr.Discard(), &cordon, false)
	})
}
