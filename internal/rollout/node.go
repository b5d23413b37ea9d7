// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"moult.dev/moult/api/v1alpha1"
)

// NewNode returns the facts of a Node that the checks need.
func NewNode(o *corev1.Node) *Node {
	n := &Node{
		Name: o.Name, Labels: o.Labels, Created: o.CreationTimestamp.Time, Unschedulable: o.Spec.Unschedulable,
		Taints: o.Spec.Taints, Conditions: o.Status.Conditions,
	}
	var err error
	if n.Claims, err = v1alpha1.ParseClaims(o.Annotations); err != nil {
		n.ClaimError = cannotRead(v1alpha1.AnnotationClaims)
	} else if _, err = v1alpha1.ParseEvicted(o.Annotations); err != nil && len(n.Claims) == 0 { // A turn that has begun replaces the record.
		n.ClaimError = cannotRead(v1alpha1.AnnotationEvicted)
	}
	n.Draining = draining(o, n.Claims)
	n.readiness = n.ready()
	return n
}

// cannotRead says that an annotation of a Node can't be read. It does not quote the value or the decoder's error. So the statuses of the rollouts that
// wait for the node do not change each time a kubelet writes another value that can't be read.
func cannotRead(annotation string) string { return "annotation " + annotation + " can't be read" }

// draining reports whether the node is claimed for a drain that is not complete. It is complete if the node's condition,
// the claim, or a later step of the turn says so. The condition Drained of a schedulable node is out of date.
func draining(o *corev1.Node, claims []v1alpha1.Claim) bool {
	drains := func(c v1alpha1.Claim) bool {
		return c.Drains && c.Drained == nil && c.Rebooting == nil && c.Changed == nil && c.Soaking == nil && c.Failed == nil
	}
	drained := NodeCondition(o.Status.Conditions, corev1.NodeDrained)
	return slices.ContainsFunc(claims, drains) && (!o.Spec.Unschedulable || drained == nil || drained.Status != corev1.ConditionTrue)
}

// SharedHostnames returns the values of the label kubernetes.io/hostname that several Nodes have.
func SharedHostnames(nodes []*corev1.Node) map[string]bool {
	seen, shared := make(map[string]bool, len(nodes)), map[string]bool{}
	for _, n := range nodes {
		if hostname := n.Labels[corev1.LabelHostname]; hostname != "" && seen[hostname] {
			shared[hostname] = true
		} else {
			seen[hostname] = true
		}
	}
	return shared
}
