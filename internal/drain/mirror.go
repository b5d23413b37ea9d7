// SPDX-License-Identifier: Apache-2.0

package drain

import corev1 "k8s.io/api/core/v1"

// mirror skips the mirrors of static pods.
func mirror(pod *corev1.Pod, _ *Facts, _ *Options) ruling {
	if _, ok := pod.Annotations[corev1.MirrorPodAnnotationKey]; !ok {
		return ruling{}
	}
	return ruling{Skip, ReasonMirrorPod, "mirrors a static pod"}
}
