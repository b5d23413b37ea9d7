// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"slices"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
)

// settle is how long after the beginning of a drain a pod without toleration of the cordon can still arrive, because the
// scheduler had not seen the cordon.
const settle = 30 * time.Second

// returned skips pods that were created after the drain began and tolerate the cordon. They would return after an eviction,
// and the drain would never end. A pod that the scheduler placed before it saw the cordon is evicted.
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
