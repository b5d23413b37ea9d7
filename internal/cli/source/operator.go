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

// ReadOperatorNode returns the node that the operator runs on: of several pods, that of the one that holds the Lease. It is empty when it is
// not known, or when the operator runs elsewhere.
func (src *Source) ReadOperatorNode(ctx context.Context) string {
	// The pods of Plans' Jobs have the first label, too.
	all, err := src.ReadPods(ctx, metav1.NamespaceAll, metav1.ListOptions{LabelSelector: upgradev1.LabelController + ",!" + upgradev1.LabelPlan})
	var pods []*corev1.Pod
	for i := range all {
		if p := &all[i]; p.Spec.NodeName != "" && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
			pods = append(pods, p)
		}
	}
	switch {
	case err == nil && len(pods) == 0:
		return ""
	case err == nil && len(pods) == 1:
		return pods[0].Spec.NodeName
	}
	for _, p := range pods {
		lease, err := src.Client.Resource(leases).Namespace(p.Namespace).Get(ctx, p.Labels[upgradev1.LabelController], metav1.GetOptions{})
		if err != nil {
			continue
		}
		if holder, _, _ := unstructured.NestedString(lease.Object, "spec", "holderIdentity"); holder == p.Name {
			return p.Spec.NodeName
		}
	}
	src.Notes = append(src.Notes, NoOperator)
	return ""
}
