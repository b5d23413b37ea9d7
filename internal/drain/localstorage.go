// SPDX-License-Identifier: Apache-2.0

package drain

import corev1 "k8s.io/api/core/v1"

// localStorage blocks pods that would lose the content of emptyDir volumes, unless the options allow it.
func localStorage(pod *corev1.Pod, _ *Facts, o *Options) ruling {
	for i := range pod.Spec.Volumes {
		if pod.Spec.Volumes[i].EmptyDir == nil {
			continue
		}
		if o.DeleteEmptyDirData {
			return ruling{reason: ReasonLocalStorage}
		}
		return ruling{Block, ReasonLocalStorage, "has local data in emptyDir volume " + pod.Spec.Volumes[i].Name}
	}
	return ruling{}
}
