// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/internal/node"
	"moult.dev/moult/internal/rollout"
)

// workloadsRule is a workloads gate.
type workloadsRule struct{ selector, namespaces labels.Selector }

// newWorkloads returns the watches of the workloads, by their kind.
func newWorkloads(g *gates) map[string]*watch {
	return map[string]*watch{
		"Deployment":  newWatch(g, "deployments", &appsv1.Deployment{}, &appsv1.DeploymentList{}, shortageChanged),
		"StatefulSet": newWatch(g, "statefulsets", &appsv1.StatefulSet{}, &appsv1.StatefulSetList{}, shortageChanged),
		"DaemonSet":   newWatch(g, "daemonsets", &appsv1.DaemonSet{}, &appsv1.DaemonSetList{}, shortageChanged),
		"ReplicaSet":  newWatch(g, "replicasets", &appsv1.ReplicaSet{}, &appsv1.ReplicaSetList{}, shortageChanged),
		"ReplicationController": newWatch(
			g, "replicationcontrollers", &corev1.ReplicationController{}, &corev1.ReplicationControllerList{}, shortageChanged,
		),
	}
}

// gated are the kinds that a gate selects. Other workloads belong to one of these, or are recorded when their pods
// are evicted.
var gated = []string{"DaemonSet", "Deployment", "StatefulSet"}

// shortage returns what a workload lacks, or "". A workload that is nil or in deletion lacks nothing.
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
		if why := g.workloads[kind].whyUnknown(); why != "" {
			return why
		}
	}
	if rule != nil && rule.namespaces != nil {
		return g.namespaces.whyUnknown()
	}
	return ""
}

// closedByWorkloads returns why the workloads gate is closed, or "". It names first evicted workloads of the budget's nodes,
// then selected workloads.
func (g *gates) closedByWorkloads(rule *workloadsRule, nodes labels.Selector, evicted []*corev1.Node) string {
	if why := g.unknownWorkloads(rule); why != "" {
		return why
	}
	return firstOf(append(g.missingEvicted(nodes, evicted), g.missingSelected(rule)...), "; ")
}

// missingSelected returns the selected workloads that lack pods.
func (g *gates) missingSelected(rule *workloadsRule) (missing []string) {
	for _, kind := range gated {
		for _, o := range objectsOf[client.Object](g.workloads[kind].store) {
			lacks := shortage(o)
			if lacks == "" || rule.selector != nil && !rule.selector.Matches(labels.Set(o.GetLabels())) {
				continue
			}
			if rollout.SelectsNamespace(rule.namespaces, o.GetNamespace(), g.namespaceLabels) {
				missing = append(missing, kind+" "+o.GetNamespace()+"/"+o.GetName()+" "+lacks)
			}
		}
	}
	slices.Sort(missing)
	return missing
}

// missingEvicted returns the workloads that were evicted from selected nodes and are not available again.
func (g *gates) missingEvicted(selector labels.Selector, nodes []*corev1.Node) (missing []string) {
	for _, n := range nodes {
		if !selector.Matches(labels.Set(n.Labels)) {
			continue
		}
		evicted, err := node.ParseEvicted(n.Annotations)
		if err != nil {
			missing = append(missing, "node "+n.Name+": "+err.Error())
		}
		for _, of := range evicted {
			if lacks := g.shortageOf(of); lacks != "" {
				missing = append(missing, "evicted from "+n.Name+": "+of.Kind+" "+of.Namespace+"/"+of.Name+" "+lacks)
			}
		}
	}
	return missing
}

// shortageOf returns what an evicted workload lacks, or "".
func (g *gates) shortageOf(of node.Workload) string {
	if w := g.workloads[of.Kind]; w != nil {
		return shortage(w.get(of.Namespace, of.Name))
	}
	return ""
}

// Recovered reports whether the record of these evictions can be removed: all workloads are available again or deleted, or
// no budget has a workloads gate.
func (f *Fleet) Recovered(s *Snapshot, evicted []node.Workload) bool {
	if !slices.ContainsFunc(s.Budgets, func(b rollout.Budget) bool { return b.Workloads }) {
		return true
	}
	return f.gates.unknownWorkloads(nil) == "" &&
		!slices.ContainsFunc(evicted, func(of node.Workload) bool { return f.gates.shortageOf(of) != "" })
}
