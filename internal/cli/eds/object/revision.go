// SPDX-License-Identifier: Apache-2.0

package object

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
)

// InSpec is the index of the revision that has the template of the ExtendedDaemonSet, the last where there are more; -1 when
// there is none, or not yet.
func InSpec(eds *edsv1.ExtendedDaemonSet, revisions []edsv1.ExtendedDaemonSetReplicaSet) int {
	for i := len(revisions) - 1; i >= 0; i-- {
		if SameTemplate(&eds.Spec.Template, &revisions[i].Spec.Template) {
			return i
		}
	}
	return -1
}

// SameTemplate reports whether two templates make the same revision. Their names do not count.
func SameTemplate(a, b *corev1.PodTemplateSpec) bool {
	a, b = a.DeepCopy(), b.DeepCopy()
	a.Name, b.Name = "", ""
	return equality.Semantic.DeepEqual(a, b)
}

// CanaryFailed is the condition that says that the canary of a revision has failed; nil when it has not.
func CanaryFailed(ers *edsv1.ExtendedDaemonSetReplicaSet) *edsv1.Condition {
	if edsv1.IsConditionTrue(ers.Status.Conditions, edsv1.ConditionCanaryFailed) {
		return edsv1.FindCondition(ers.Status.Conditions, edsv1.ConditionCanaryFailed)
	}
	return nil
}
