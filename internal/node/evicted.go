// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"encoding/json"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/api/v1alpha1"
)

// recorded are the kinds that belong in the record of evictions.
var recorded = []string{"apps/v1 ReplicaSet", "apps/v1 StatefulSet", "v1 ReplicationController"}

// WorkloadOf returns the controller of a pod, if its kind belongs in the record of evictions.
func WorkloadOf(namespace string, owner *metav1.OwnerReference) (v1alpha1.Workload, bool) {
	if owner == nil || !slices.Contains(recorded, owner.APIVersion+" "+owner.Kind) {
		return v1alpha1.Workload{}, false
	}
	return v1alpha1.Workload{Kind: owner.Kind, Namespace: namespace, Name: owner.Name}, true
}

// Evicting returns a change that adds these workloads to the record of evictions: sorted, without duplicates, at most v1alpha1.MaxEvicted. It
// replaces an unreadable record.
func Evicting(workloads ...v1alpha1.Workload) Also {
	return func(n *corev1.Node, _ string) {
		if len(workloads) == 0 {
			return
		}
		before, _ := v1alpha1.ParseEvicted(n.Annotations)
		names := sets.New[string]()
		for _, w := range append(before, workloads...) {
			names.Insert(w.String())
		}
		lines := sets.List(names)
		value, _ := json.Marshal(lines[:min(len(lines), v1alpha1.MaxEvicted)]) // Strings always marshal.
		set(&n.Annotations, map[string]*string{v1alpha1.AnnotationEvicted: ptr.To(string(value))})
	}
}

// RecordEvicted adds these workloads to the Node's record of evictions. It writes nothing if the record has them all.
func RecordEvicted(ctx context.Context, c client.Client, n *corev1.Node, workloads ...v1alpha1.Workload) error {
	return retry(ctx, c, n, func(n *corev1.Node) error {
		return write(ctx, c, n, func(n *corev1.Node) error {
			Evicting(workloads...)(n, "")
			return nil
		})
	})
}

// ForgetEvicted deletes the Node's record of evictions. It fails with a conflict if the Node changed since it was read; the caller decides again.
func ForgetEvicted(ctx context.Context, c client.Writer, n *corev1.Node) error {
	return write(ctx, c, n, func(n *corev1.Node) error {
		delete(n.Annotations, v1alpha1.AnnotationEvicted)
		return nil
	})
}
