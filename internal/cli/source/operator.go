// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
)

// leases are where the operator's processes agree on which of them works.
var leases = schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}

// NoOperator is said to those who may not see where the operator runs.
const NoOperator = "The operator's own node, which goes last, is not known: its pods, or its Lease, can't be read."

// ReadOperatorNode returns the node that the operator runs on: of several of its pods that of the one that holds the Lease. Where it is not to be
// seen a note says so.
func (src *Source) ReadOperatorNode(ctx context.Context) (node, note string) {
	var pods []corev1.Pod
	// The pods of Plans' Jobs have the first label, too.
	o := metav1.ListOptions{LabelSelector: upgradev1.LabelController + ",!" + upgradev1.LabelPlan}
	err := src.eachPod(ctx, metav1.NamespaceAll, o, func(p *corev1.Pod) {
		if p.Spec.NodeName != "" && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
			pods = append(pods, *p)
		}
	})
	switch {
	case err != nil:
		return "", NoOperator
	case len(pods) == 0:
		return "", "" // It runs elsewhere.
	case len(pods) == 1:
		return pods[0].Spec.NodeName, ""
	}
	for i := range pods {
		p := &pods[i]
		lease, err := src.Client.Resource(leases).Namespace(p.Namespace).Get(ctx, p.Labels[upgradev1.LabelController], metav1.GetOptions{})
		if err != nil {
			continue
		}
		if holder, _, _ := unstructured.NestedString(lease.Object, "spec", "holderIdentity"); holder == p.Name {
			return p.Spec.NodeName, ""
		}
	}
	return "", NoOperator
}
