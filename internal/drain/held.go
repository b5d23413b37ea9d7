// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
)

// HeldBy returns the PodDisruptionBudget that would refuse the eviction of a pod now, and why, by the API server's rules.
// It is empty if the pod may be evicted.
func HeldBy(pod *corev1.Pod, budgets []policyv1.PodDisruptionBudget) (budget, message string) {
	if pod.DeletionTimestamp != nil || pod.Status.Phase != corev1.PodRunning {
		return "", "" // The API server ignores budgets for such a pod.
	}
	var of []*policyv1.PodDisruptionBudget
	for i := range budgets {
		b := &budgets[i]
		selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
		if err == nil && b.Namespace == pod.Namespace && selector.Matches(labels.Set(pod.Labels)) {
			of = append(of, b)
		}
	}
	switch {
	case len(of) == 0:
		return "", ""
	case len(of) > 1:
		return of[0].Name + ", " + of[1].Name, "more than one PodDisruptionBudget selects it, so the API server never evicts it"
	}
	b := of[0]
	healthy, desired := b.Status.CurrentHealthy, b.Status.DesiredHealthy
	ready := slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
	allowsUnready := healthy >= desired && desired > 0 || ptr.Deref(b.Spec.UnhealthyPodEvictionPolicy, "") == policyv1.AlwaysAllow
	if b.Status.DisruptionsAllowed > 0 || !ready && allowsUnready {
		return "", ""
	}
	return b.Name, fmt.Sprintf("it allows no disruption now: %d of %d desired pods are healthy", healthy, desired)
}
