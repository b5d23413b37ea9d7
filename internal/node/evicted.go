// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/api/v1alpha1"
)

// MaxEvicted limits how many workloads the record of evictions on one Node names.
const MaxEvicted = 500

// Workload is the controller of pods that were evicted: a ReplicaSet, a StatefulSet or a ReplicationController.
type Workload struct {
	Kind, Namespace, Name string
}

// String returns "Kind/namespace/name", as in the annotation.
func (w Workload) String() string { return w.Kind + "/" + w.Namespace + "/" + w.Name }

// recorded are the kinds that belong in the record of evictions.
var recorded = []string{"apps/v1 ReplicaSet", "apps/v1 StatefulSet", "v1 ReplicationController"}

// WorkloadOf returns the controller of a pod, if its kind belongs in the record of evictions.
func WorkloadOf(namespace string, owner *metav1.OwnerReference) (Workload, bool) {
	if owner == nil || !slices.Contains(recorded, owner.APIVersion+" "+owner.Kind) {
		return Workload{}, false
	}
	return Workload{owner.Kind, namespace, owner.Name}, true
}

// ParseEvicted reads the record of evictions from a Node's annotations. No annotation means that nothing was evicted. An
// unreadable value is an error.
func ParseEvicted(annotations map[string]string) ([]Workload, error) {
	value, ok := annotations[v1alpha1.AnnotationEvicted]
	if !ok || value == "" {
		return nil, nil
	}
	var lines []string
	if err := json.Unmarshal([]byte(value), &lines); err != nil {
		return nil, fmt.Errorf("reading annotation %s, %w", v1alpha1.AnnotationEvicted, err)
	}
	if len(lines) > MaxEvicted {
		return nil, fmt.Errorf("reading annotation %s, it names more than %d workloads", v1alpha1.AnnotationEvicted, MaxEvicted)
	}
	workloads := make([]Workload, len(lines))
	for i, line := range lines {
		parts := strings.Split(line, "/")
		if len(parts) != 3 || slices.Contains(parts, "") {
			return nil, fmt.Errorf("reading annotation %s, %q is not Kind/namespace/name", v1alpha1.AnnotationEvicted, line)
		}
		workloads[i] = Workload{parts[0], parts[1], parts[2]}
	}
	return workloads, nil
}

// Evicting returns a change that adds these workloads to the record of evictions: sorted, without duplicates, at most MaxEvicted. It replaces
// an unreadable record.
func Evicting(workloads ...Workload) Also {
	return func(n *corev1.Node, _ string) {
		if len(workloads) == 0 {
			return
		}
		before, _ := ParseEvicted(n.Annotations)
		names := sets.New[string]()
		for _, w := range append(before, workloads...) {
			names.Insert(w.String())
		}
		lines := sets.List(names)
		value, _ := json.Marshal(lines[:min(len(lines), MaxEvicted)]) // Strings always marshal.
		set(&n.Annotations, map[string]*string{v1alpha1.AnnotationEvicted: ptr.To(string(value))})
	}
}

// RecordEvicted adds these workloads to the Node's record of evictions. It writes nothing if the record has them all.
func RecordEvicted(ctx context.Context, c client.Client, n *corev1.Node, workloads ...Workload) error {
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
