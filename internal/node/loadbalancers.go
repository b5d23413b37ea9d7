// SPDX-License-Identifier: Apache-2.0

package node

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"moult.dev/moult/api/v1alpha1"
)

// Excluding labels the node node.kubernetes.io/exclude-from-external-load-balancers, and marks it for the rollout. A
// node that already has the label is not changed.
func Excluding(n *corev1.Node, by string) {
	if _, excluded := n.Labels[corev1.LabelNodeExcludeBalancers]; !excluded {
		set(&n.Labels, map[string]*string{corev1.LabelNodeExcludeBalancers: ptr.To("")})
		set(&n.Annotations, map[string]*string{v1alpha1.AnnotationExcludedBy: &by})
	}
}

// include removes the label and its mark, if the rollout releases the node and the mark names this rollout.
// It also removes a mark without the label: a later label would not be the rollout's.
func include(n *corev1.Node, by string, releases bool) {
	_, excluded := n.Labels[corev1.LabelNodeExcludeBalancers]
	if holder, marked := n.Annotations[v1alpha1.AnnotationExcludedBy]; marked && (!excluded || releases && holder == by) {
		delete(n.Labels, corev1.LabelNodeExcludeBalancers)
		delete(n.Annotations, v1alpha1.AnnotationExcludedBy)
	}
}
