// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// critical is where the priorities of system-cluster-critical and, a thousand higher, system-node-critical begin.
const critical int32 = 2_000_000_000

// order puts the pods that should go first first: lowest priority, then by namespace and name so that two passes agree.
func order(verdicts []Verdict) {
	slices.SortFunc(verdicts, func(a, b Verdict) int {
		return first(outcomeOf(&a, "", ""), outcomeOf(&b, "", ""))
	})
}

// first compares pods by which goes first.
func first(a, b Outcome) int {
	return cmp.Or(
		cmp.Compare(a.Priority, b.Priority),
		cmp.Compare(a.Pod.Namespace, b.Pod.Namespace),
		cmp.Compare(a.Pod.Name, b.Pod.Name),
	)
}

// priority is 0 for a pod that was admitted without one, as it is for one without a class.
func priority(pod *corev1.Pod) int32 {
	if pod.Spec.Priority == nil {
		return 0
	}
	return *pod.Spec.Priority
}
