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
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/api/v1alpha1"
)

// Tainted reports whether the node has the taint key:PreferNoSchedule.
func Tainted(n *corev1.Node, key string) bool { return taintAt(n, key) >= 0 }

// TaintedBy returns the rollouts of a kind that have tainted the node as outdated.
func TaintedBy(o client.Object, kind string) []string {
	n, ok := o.(*corev1.Node)
	if !ok {
		return nil
	}
	var names []string
	for i := range n.Spec.Taints {
		t := &n.Spec.Taints[i]
		if name, ok := strings.CutPrefix(t.Key, strings.ToLower(kind)+v1alpha1.TaintOutdatedSuffix+"/"); ok && t.Effect == corev1.TaintEffectPreferNoSchedule {
			names = append(names, name)
		}
	}
	return names
}

func taintAt(n *corev1.Node, key string) int {
	return slices.IndexFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == key && t.Effect == corev1.TaintEffectPreferNoSchedule })
}

// Taint adds the taint key:PreferNoSchedule to the node. It writes nothing if the node has it. It fails with a conflict if
// the node changed since it was read; the caller decides again.
func Taint(ctx context.Context, c client.Writer, n *corev1.Node, key string) error {
	if Tainted(n, key) {
		return nil
	}
	taint := corev1.Taint{Key: key, Effect: corev1.TaintEffectPreferNoSchedule}
	if len(n.Spec.Taints) == 0 {
		return PatchJSON(ctx, c, n, Operation{"add", "/spec/taints", []corev1.Taint{taint}})
	}
	return PatchJSON(ctx, c, n, Operation{"add", "/spec/taints/-", taint})
}

// Untaint removes the taint key:PreferNoSchedule from the node. It writes nothing if the node does not have it, and fails
// like Taint.
func Untaint(ctx context.Context, c client.Writer, n *corev1.Node, key string) error {
	i := taintAt(n, key)
	if i < 0 {
		return nil
	}
	return PatchJSON(ctx, c, n, Operation{Op: "remove", Path: fmt.Sprintf("/spec/taints/%d", i)})
}

// Operation is one operation of a JSON patch.
type Operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// PatchJSON changes the node with its resourceVersion as precondition. Taints need a JSON patch: a merge patch needs all fields of every taint.
func PatchJSON(ctx context.Context, c client.Writer, n *corev1.Node, changes ...Operation) error {
	// Replacing the resourceVersion makes it a precondition. A "test" operation would not return a conflict.
	body, err := json.Marshal(append([]Operation{{"replace", "/metadata/resourceVersion", n.ResourceVersion}}, changes...))
	if err == nil {
		err = c.Patch(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name}}, client.RawPatch(types.JSONPatchType, body))
	}
	if err != nil {
		return fmt.Errorf("changing node %s, %w", n.Name, err)
	}
	return nil
}
