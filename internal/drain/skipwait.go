// SPDX-License-Identifier: Apache-2.0

package drain

import corev1 "k8s.io/api/core/v1"

// skipWait skips pods that should have ended long ago. The deletion timestamp is the end of the grace period, not the time
// of the request.
func skipWait(pod *corev1.Pod, f *Facts, o *Options) ruling {
	if o.SkipWaitForDelete <= 0 || pod.DeletionTimestamp.IsZero() {
		return ruling{}
	}
	if f.Now.Sub(pod.DeletionTimestamp.Time) <= o.SkipWaitForDelete {
		return ruling{}
	}
	return ruling{Skip, ReasonDeletionOverdue, "should have ended more than " + o.SkipWaitForDelete.String() + " ago"}
}
