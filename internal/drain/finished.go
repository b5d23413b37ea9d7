// SPDX-License-Identifier: Apache-2.0

package drain

import corev1 "k8s.io/api/core/v1"

// finished evicts pods that have succeeded or failed, regardless of controller and volumes, because nothing runs in them.
func finished(pod *corev1.Pod, _ *Facts, _ *Options) ruling {
	if pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
		return ruling{}
	}
	return ruling{action: Evict}
}
