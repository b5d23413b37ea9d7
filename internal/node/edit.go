// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/api/v1alpha1"
)

// Edit is one write of a turn to its Node. Fields that it does not name are unchanged.
type Edit struct {
	// Claim of the rollout. It replaces the rollout's earlier claim; with Release it is removed.
	Claim   v1alpha1.Claim
	Release bool
	// KeepClaims leaves the claims unchanged. Only Claim.Rollout is used.
	KeepClaims bool
	// Cordon makes the node unschedulable, and marks it for the rollout. A node that is already unschedulable is not
	// marked.
	Cordon bool
	// Restore undoes the changes of the turn: it uncordons the node if the turn cordoned it, and removes the rollout's
	// exclusion from external load balancers.
	Restore bool
	// Also are further changes of the same write.
	Also []Also
}

// Write makes an edit in one patch with the Node's resourceVersion as precondition. After a conflict the caller decides
// again. It writes nothing if nothing changes. An edit that writes a claim fails if another exists that is neither shared nor a mere result. A Node
// from the operator's trimmed cache is sufficient: fields that the cache drops are not changed.
func Write(ctx context.Context, c client.Writer, n *corev1.Node, e Edit) error {
	return write(ctx, c, n, e.apply)
}

// write patches what edit changes of a Node's annotations, labels, cordon and taints. Taints are replaced as a whole: a cache must keep all
// their fields.
func write(ctx context.Context, c client.Writer, n *corev1.Node, edit func(*corev1.Node) error) error {
	changed := n.DeepCopy()
	if err := edit(changed); err != nil {
		return fmt.Errorf("writing node %s, %w", n.Name, err)
	}
	p := patch{Spec: map[string]any{}, Metadata: patchMetadata{
		ResourceVersion: n.ResourceVersion, Annotations: difference(n.Annotations, changed.Annotations), Labels: difference(n.Labels, changed.Labels),
	}}
	if n.Spec.Unschedulable != changed.Spec.Unschedulable {
		p.Spec["unschedulable"] = changed.Spec.Unschedulable
	}
	if !equality.Semantic.DeepEqual(n.Spec.Taints, changed.Spec.Taints) {
		p.Spec["taints"] = changed.Spec.Taints
	}
	if len(p.Metadata.Annotations)+len(p.Metadata.Labels)+len(p.Spec) == 0 {
		return nil
	}
	body, _ := json.Marshal(p) // Strings, taints and a flag always marshal.
	err := c.Patch(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name}}, client.RawPatch(types.MergePatchType, body))
	if err != nil {
		return fmt.Errorf("writing node %s, %w", n.Name, err)
	}
	return nil
}

type patch struct {
	Metadata patchMetadata  `json:"metadata"`
	Spec     map[string]any `json:"spec,omitempty"`
	Status   map[string]any `json:"status,omitempty"`
}

type patchMetadata struct {
	ResourceVersion string             `json:"resourceVersion"`
	Annotations     map[string]*string `json:"annotations,omitempty"`
	Labels          map[string]*string `json:"labels,omitempty"`
}

// difference returns the patch from one map to the other; nil removes a key.
func difference(before, after map[string]string) map[string]*string {
	d := map[string]*string{}
	for key, value := range after {
		if old, there := before[key]; !there || old != value {
			d[key] = &value
		}
	}
	for key := range before {
		if _, there := after[key]; !there {
			d[key] = nil
		}
	}
	return d
}

func (e *Edit) apply(n *corev1.Node) error {
	by := e.Claim.Rollout
	// The rollout's mark or the given claim says whether this turn cordoned the node.
	cordoned := cordonedFor(n, e.Claim)
	if !e.KeepClaims {
		claims, err := claimsWith(n, e.Claim, !e.Release)
		if err != nil {
			return err
		}
		set(&n.Annotations, map[string]*string{v1alpha1.AnnotationClaims: claims})
	}
	switch {
	case e.Restore && cordoned:
		n.Spec.Unschedulable = false
		delete(n.Annotations, v1alpha1.AnnotationCordonedBy)
	case e.Cordon && !n.Spec.Unschedulable:
		n.Spec.Unschedulable = true
		set(&n.Annotations, map[string]*string{v1alpha1.AnnotationCordonedBy: &by})
	case !n.Spec.Unschedulable:
		delete(n.Annotations, v1alpha1.AnnotationCordonedBy) // A person has uncordoned the node, and the mark is out of date.
	}
	include(n, by, e.Restore)
	for _, also := range e.Also {
		also(n, by)
	}
	return nil
}

// Also is a further change of the Node in the same patch. by is the rollout's name.
type Also func(n *corev1.Node, by string)

// Annotating returns a change that sets annotations of the node; nil removes one.
func Annotating(values map[string]*string) Also {
	return func(n *corev1.Node, _ string) { set(&n.Annotations, values) }
}

// Labelling returns a change that sets labels of the node; nil removes one.
func Labelling(values map[string]*string) Also {
	return func(n *corev1.Node, _ string) { set(&n.Labels, values) }
}

// set sets keys, or removes them with nil.
func set(m *map[string]string, values map[string]*string) {
	if *m == nil {
		*m = map[string]string{}
	}
	for key, value := range values {
		if value == nil {
			delete(*m, key)
		} else {
			(*m)[key] = *value
		}
	}
}

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
