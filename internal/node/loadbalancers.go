// SPDX-License-Identifier: Apache-2.0

package node

import (
	corev1 "k8s.io/api/core/v1"

	"moult.dev/moult/api/v1alpha1"
)

// Excluding also labels the node node.kubernetes.io/exclude-from-external-load-balancers, and marks by whom. A node that
// has the label already is left as it is: whoever put it there keeps it. done, if it is not nil, says afterwards whether
// this put the label there.
func Excluding(done *bool) Also {
	return func(n *corev1.Node, by string) bool {
		_, excluded := n.Labels[corev1.LabelNodeExcludeBalancers]
		if done != nil {
			*done = !excluded
		}
		if excluded {
			return false
		}
		set(&n.Labels, corev1.LabelNodeExcludeBalancers, "")
		set(&n.Annotations, v1alpha1.AnnotationExcludedBy, actor(by))
		return true
	}
}

// exclusion is how a node stands to external load balancers: whether it is kept from them, and who says that it was them.
// A mark without the label is left over: somebody has taken the label off, and a later one must not be taken for it.
func exclusion(n *corev1.Node) (excluded bool, by string, marked bool) {
	_, excluded = n.Labels[corev1.LabelNodeExcludeBalancers]
	by, marked = n.Annotations[v1alpha1.AnnotationExcludedBy]
	return excluded, by, marked
}

// include takes the label off with its mark, if the mark is of one whose label goes, and a mark that is left over. It says
// whether there was one.
func include(n *corev1.Node, goes func(by string) bool) bool {
	excluded, by, marked := exclusion(n)
	if !marked || excluded && !goes(by) {
		return false
	}
	delete(n.Labels, corev1.LabelNodeExcludeBalancers)
	delete(n.Annotations, v1alpha1.AnnotationExcludedBy)
	return true
}

func set(m *map[string]string, key, value string) {
	if *m == nil {
		*m = map[string]string{}
	}
	(*m)[key] = value
}
