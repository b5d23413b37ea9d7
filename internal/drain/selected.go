// SPDX-License-Identifier: Apache-2.0

package drain

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// selected skips the pods that the selector doesn't select.
func selected(pod *corev1.Pod, _ *Facts, o *Options) ruling {
	if o.PodSelector == nil || o.PodSelector.Matches(labels.Set(pod.Labels)) {
		return ruling{}
	}
	return ruling{Skip, ReasonNotSelected, "is not selected"}
}
