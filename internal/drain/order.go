// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// critical is the priority of system-cluster-critical; system-node-critical is a thousand higher.
const critical int32 = 2_000_000_000

// order sorts pods for eviction: by ascending priority, then by namespace and name, so that two passes agree.
func order(verdicts []Verdict) {
	slices.SortFunc(verdicts, func(a, b Verdict) int {
		return first(outcomeOf(&a, "", ""), outcomeOf(&b, "", ""))
	})
}

// first compares pods by their order of eviction.
func first(a, b Outcome) int {
	return cmp.Or(
		cmp.Compare(a.Priority, b.Priority),
		cmp.Compare(a.Pod.Namespace, b.Pod.Namespace),
		cmp.Compare(a.Pod.Name, b.Pod.Name),
	)
}

// priority returns the priority of a pod, 0 if it has none.
func priority(pod *corev1.Pod) int32 {
	if pod.Spec.Priority == nil {
		return 0
	}
	return *pod.Spec.Priority
}
