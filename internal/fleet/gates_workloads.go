// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/node"
	"moult.dev/moult/internal/rollout"
)

// workloadsRule is a workloads gate.
type workloadsRule struct{ selector, namespaces labels.Selector }

// newWorkloads returns the watches of the workloads, by their kind.
func newWorkloads(g *gates) map[string]*watch {
	return map[string]*watch{
		"Deployment":  {kind: "deployments", object: &appsv1.Deployment{}, list: &appsv1.DeploymentList{}, matters: shortageChanged, gates: g},
		"StatefulSet": {kind: "statefulsets", object: &appsv1.StatefulSet{}, list: &appsv1.StatefulSetList{}, matters: shortageChanged, gates: g},
		"DaemonSet":   {kind: "daemonsets", object: &appsv1.DaemonSet{}, list: &appsv1.DaemonSetList{}, matters: shortageChanged, gates: g},
		"ReplicaSet":  {kind: "replicasets", object: &appsv1.ReplicaSet{}, list: &appsv1.ReplicaSetList{}, matters: shortageChanged, gates: g},
		"ReplicationController": {
			kind: "replicationcontrollers", object: &corev1.ReplicationController{}, list: &corev1.ReplicationControllerList{}, matters: shortageChanged, gates: g,
		},
	}
}

// gated are the kinds that a gate selects. Pods of other kinds belong to one of these, or are recorded when they are
// evicted.
var gated = []string{"DaemonSet", "Deployment", "StatefulSet"}

// shortage returns what a workload lacks, or "". A workload in deletion lacks nothing.
func shortage(o client.Object) string {
	var observed int64
	var have, want int32
	switch o := o.(type) {
	case *appsv1.Deployment:
		observed, have, want = o.Status.ObservedGeneration, o.Status.AvailableReplicas, ptr.Deref(o.Spec.Replicas, 1)
	case *appsv1.StatefulSet:
		observed, have, want = o.Status.ObservedGeneration, o.Status.AvailableReplicas, ptr.Deref(o.Spec.Replicas, 1)
	case *appsv1.DaemonSet:
		observed, have, want = o.Status.ObservedGeneration, o.Status.NumberAvailable, o.Status.DesiredNumberScheduled
	case *appsv1.ReplicaSet:
		observed, have, want = o.Status.ObservedGeneration, o.Status.AvailableReplicas, ptr.Deref(o.Spec.Replicas, 1)
	case *corev1.ReplicationController:
		observed, have, want = o.Status.ObservedGeneration, o.Status.AvailableReplicas, ptr.Deref(o.Spec.Replicas, 1)
	default:
		return ""
	}
	switch {
	case o.GetDeletionTimestamp() != nil:
		return ""
	case observed < o.GetGeneration():
		return "has changed, and its controller has not observed it yet"
	case have < want:
		return fmt.Sprintf("has %d of %d available", have, want)
	}
	return ""
}

func shortageChanged(old, now client.Object) bool {
	before, after := shortage(old), shortage(now)
	return before != after || after != "" && !maps.Equal(old.GetLabels(), now.GetLabels())
}

// unknownWorkloads returns why the workloads are not known, or the namespaces of a rule that selects by them; or "".
func (g *gates) unknownWorkloads(rule *workloadsRule) string {
	for _, kind := range slices.Sorted(maps.Keys(g.workloads)) {
		if why := g.workloads[kind].unknown(); why != "" {
			return why
		}
	}
	if rule != nil && rule.namespaces != nil {
		return g.namespaces.unknown()
	}
	return ""
}

// closedByWorkloads adds why the workloads gate is closed: first evicted workloads of the budget's nodes, then selected
// workloads.
func (g *gates) closedByWorkloads(ctx context.Context, rule *workloadsRule, selected []string, nodes labels.Selector, a *answer) {
	if why := g.unknownWorkloads(rule); why != "" {
		a.close(v1alpha1.ReasonWorkloadsUnavailable, why)
		return
	}
	missing, err := g.missingEvicted(ctx, nodes)
	if err != nil {
		a.close(v1alpha1.ReasonWorkloadsUnavailable, err.Error())
	} else if missing = append(missing, selected...); len(missing) > 0 {
		a.close(v1alpha1.ReasonWorkloadsUnavailable, firstOf(missing, "; "))
	}
}

// missingSelected returns the selected workloads that lack pods.
func (g *gates) missingSelected(rule *workloadsRule) (missing []string) {
	for _, kind := range gated {
		for _, stored := range g.workloads[kind].store.List() {
			o, ok := stored.(client.Object)
			if !ok {
				continue
			}
			if lacks := shortage(o); lacks != "" && selects(rule.selector, o.GetLabels()) && rollout.SelectsNamespace(rule.namespaces, o.GetNamespace(), g.namespaceLabels) {
				missing = append(missing, kind+" "+o.GetNamespace()+"/"+o.GetName()+" "+lacks)
			}
		}
	}
	slices.Sort(missing)
	return missing
}

// IndexEvicted is the index of Nodes that have a record of evictions; Evicted makes its values.
const IndexEvicted = v1alpha1.AnnotationEvicted

// HasRecord is the only value of that index.
const HasRecord = "true"

// Evicted returns the index value of a Node.
func Evicted(o client.Object) []string {
	if o.GetAnnotations()[v1alpha1.AnnotationEvicted] == "" {
		return nil
	}
	return []string{HasRecord}
}

// recorded returns the nodes with a record of evictions, sorted by name, including deleted nodes that budgets still count.
func (g *gates) recorded(ctx context.Context) ([]corev1.Node, error) {
	var nodes corev1.NodeList
	if err := g.client.List(ctx, &nodes, client.MatchingFields{IndexEvicted: HasRecord}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing nodes with evictions, %w", err)
	}
	if g.absent != nil {
		absent, err := g.absent(ctx)
		if err != nil {
			return nil, err
		}
		for _, n := range absent {
			if n.Annotations[v1alpha1.AnnotationEvicted] != "" {
				nodes.Items = append(nodes.Items, *n)
			}
		}
	}
	slices.SortFunc(nodes.Items, func(a, b corev1.Node) int { return cmp.Compare(a.Name, b.Name) })
	return nodes.Items, nil
}

// missingEvicted returns the workloads that were evicted from these nodes and are not available again.
func (g *gates) missingEvicted(ctx context.Context, from labels.Selector) (missing []string, err error) {
	nodes, err := g.recorded(ctx)
	if err != nil {
		return nil, err
	}
	for i := range nodes {
		n := &nodes[i]
		if !selects(from, n.Labels) {
			continue
		}
		evicted, err := node.ParseEvicted(n.Annotations)
		if err != nil {
			missing = append(missing, "node "+n.Name+": "+err.Error())
		}
		for _, of := range evicted {
			if lacks := g.lacks(of); lacks != "" {
				missing = append(missing, "evicted from "+n.Name+": "+of.Kind+" "+of.Namespace+"/"+of.Name+" "+lacks)
			}
		}
	}
	return missing, nil
}

// lacks returns what an evicted workload lacks, or "".
func (g *gates) lacks(of node.Workload) string {
	w := g.workloads[of.Kind]
	if w == nil {
		return ""
	}
	if o := w.get(of.Namespace, of.Name); o != nil {
		return shortage(o)
	}
	return ""
}

// Recovered reports whether the record of these evictions can be removed: all workloads are available again or deleted, or
// no budget has a workloads gate.
func (f *Fleet) Recovered(ctx context.Context, evicted []node.Workload) (bool, error) {
	var budgets v1alpha1.NodeDisruptionBudgetList
	if err := f.client.List(ctx, &budgets, client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("listing budgets, %w", err)
	}
	gated := func(b v1alpha1.NodeDisruptionBudget) bool {
		return b.DeletionTimestamp == nil && b.Spec.Gates != nil && b.Spec.Gates.Workloads != nil
	}
	if !slices.ContainsFunc(budgets.Items, gated) {
		return true, nil
	}
	if f.gates.unknownWorkloads(nil) != "" {
		return false, nil
	}
	return !slices.ContainsFunc(evicted, func(of node.Workload) bool { return f.gates.lacks(of) != "" }), nil
}
