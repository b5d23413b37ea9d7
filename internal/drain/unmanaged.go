// SPDX-License-Identifier: Apache-2.0

package drain

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// unmanaged blocks pods without a controller, unless the options force it.
func unmanaged(pod *corev1.Pod, _ *Facts, o *Options) ruling {
	if metav1.GetControllerOfNoCopy(pod) != nil {
		return ruling{}
	}
	if o.Force {
		return ruling{reason: ReasonUnmanaged}
	}
	return ruling{Block, ReasonUnmanaged, "has no controller"}
}
