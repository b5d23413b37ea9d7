// SPDX-License-Identifier: Apache-2.0

// Package node has all writes to Nodes: claims, the cordon, labels, taints and conditions. Each write is one small patch.
// Its precondition is the Node's resourceVersion. After a conflict the caller decides again; conditions and RecordEvicted retry.
package node

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
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
	include(n, by, e.Restore || !n.Spec.Unschedulable)
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

// include removes the label and its mark, if the node is schedulable again or released, and the mark names this rollout.
// It also removes a mark without the label: a later label would not be the rollout's.
func include(n *corev1.Node, by string, releases bool) {
	_, excluded := n.Labels[corev1.LabelNodeExcludeBalancers]
	if holder, marked := n.Annotations[v1alpha1.AnnotationExcludedBy]; marked && (!excluded || releases && holder == by) {
		delete(n.Labels, corev1.LabelNodeExcludeBalancers)
		delete(n.Annotations, v1alpha1.AnnotationExcludedBy)
	}
}

// Holder is the name of a rollout in claims and marks: "Kind/namespace/name".
func Holder(kind string, key types.NamespacedName) string {
	if key.Namespace == "" {
		return kind + "/" + key.Name
	}
	return kind + "/" + key.Namespace + "/" + key.Name
}

// cordonedFor reports whether the node is unschedulable because of this claim, so that the end of the turn uncordons it.
// Such a node has the rollout's mark, or it was schedulable at the claim and the tool that cordons sets no mark. A node
// that a person cordoned has neither.
func cordonedFor(n *corev1.Node, claim v1alpha1.Claim) bool {
	return n.Spec.Unschedulable && (n.Annotations[v1alpha1.AnnotationCordonedBy] == claim.Rollout || claim.Uncordon)
}

// claimsWith returns the annotation's value with or without the rollout's own claim; nil if none remains. It fails if another claim conflicts.
func claimsWith(n *corev1.Node, own v1alpha1.Claim, keep bool) (*string, error) {
	claims, err := v1alpha1.ParseClaims(n.Annotations)
	if err != nil {
		return nil, err
	}
	claims = slices.DeleteFunc(claims, func(other v1alpha1.Claim) bool { return other.UID == own.UID })
	if keep {
		for _, other := range claims {
			if !own.RecordsResult() && !other.RecordsResult() && (!own.Shared || !other.Shared) {
				return nil, fmt.Errorf("claimed by %s since %s", other.Rollout, other.Since.UTC())
			}
		}
		claims = append(claims, own)
	}
	if len(claims) == 0 {
		return nil, nil
	}
	value, err := v1alpha1.FormatClaims(claims)
	return &value, err
}

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

// Taint adds the taint key:PreferNoSchedule to the node, or removes it. It writes nothing if nothing changes. It fails with a conflict if the
// node changed since it was read; the caller decides again.
func Taint(ctx context.Context, c client.Writer, n *corev1.Node, key string, on bool) error {
	return write(ctx, c, n, func(n *corev1.Node) error {
		taint := corev1.Taint{Key: key, Effect: corev1.TaintEffectPreferNoSchedule}
		switch i := slices.IndexFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&taint) }); {
		case on && i < 0:
			n.Spec.Taints = append(n.Spec.Taints, taint)
		case !on && i >= 0:
			n.Spec.Taints = slices.Delete(n.Spec.Taints, i, i+1)
		}
		return nil
	})
}

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
