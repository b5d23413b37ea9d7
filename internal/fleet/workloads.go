// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/node"
)

// workloads knows which workloads have fewer available pods than they want.
type workloads struct {
	gates   *gates
	watches []*watch

	mu    sync.RWMutex
	short map[node.Workload]shortage
}

// workloadsRule is a workloads gate.
type workloadsRule struct {
	selector, namespaces labels.Selector

	mu sync.Mutex
	// seen is the version that last was made of.
	seen uint64
	last []string
}

// shortage is how many pods of a workload are available, and how many it wants.
type shortage struct {
	labels     map[string]string
	have, want int32
	// unseen is true when its controller has not seen yet what it was changed to.
	unseen bool
}

func (s shortage) String() string {
	if s.unseen {
		return "has been changed, and its controller has not taken notice yet"
	}
	return fmt.Sprintf("has %d of %d available", s.have, s.want)
}

func (s shortage) equal(o shortage) bool {
	return s.have == o.have && s.want == o.want && s.unseen == o.unseen && maps.Equal(s.labels, o.labels)
}

func newWorkloads(g *gates) *workloads {
	w := &workloads{gates: g, short: map[node.Workload]shortage{}}
	for _, k := range []struct {
		what   string
		object client.Object
		list   client.ObjectList
	}{
		{"deployments", &appsv1.Deployment{}, &appsv1.DeploymentList{}},
		{"statefulsets", &appsv1.StatefulSet{}, &appsv1.StatefulSetList{}},
		{"daemonsets", &appsv1.DaemonSet{}, &appsv1.DaemonSetList{}},
		{"replicasets", &appsv1.ReplicaSet{}, &appsv1.ReplicaSetList{}},
		{"replicationcontrollers", &corev1.ReplicationController{}, &corev1.ReplicationControllerList{}},
	} {
		w.watches = append(w.watches, &watch{what: k.what, object: k.object, list: k.list, seen: w.seen, gone: w.gone, gates: g})
	}
	return w
}

// shortageOf says which workload an object is, and what it lacks, if it lacks something. One that is being deleted lacks
// nothing.
func shortageOf(o client.Object) (of node.Workload, s shortage, short bool) {
	of = node.Workload{Namespace: o.GetNamespace(), Name: o.GetName()}
	var observed int64
	want := func(replicas *int32) int32 {
		if replicas == nil {
			return 1
		}
		return *replicas
	}
	switch o := o.(type) {
	case *appsv1.Deployment:
		of.Kind, observed, s.have, s.want = "Deployment", o.Status.ObservedGeneration, o.Status.AvailableReplicas, want(o.Spec.Replicas)
	case *appsv1.StatefulSet:
		of.Kind, observed, s.have, s.want = "StatefulSet", o.Status.ObservedGeneration, o.Status.AvailableReplicas, want(o.Spec.Replicas)
	case *appsv1.DaemonSet:
		of.Kind, observed, s.have, s.want = "DaemonSet", o.Status.ObservedGeneration, o.Status.NumberAvailable, o.Status.DesiredNumberScheduled
	case *appsv1.ReplicaSet:
		of.Kind, observed, s.have, s.want = "ReplicaSet", o.Status.ObservedGeneration, o.Status.AvailableReplicas, want(o.Spec.Replicas)
	case *corev1.ReplicationController:
		of.Kind, observed, s.have, s.want = "ReplicationController", o.Status.ObservedGeneration, o.Status.AvailableReplicas, want(o.Spec.Replicas)
	default:
		return of, s, false
	}
	s.labels, s.unseen = o.GetLabels(), observed < o.GetGeneration()
	return of, s, o.GetDeletionTimestamp() == nil && (s.unseen || s.have < s.want)
}

func (w *workloads) seen(o client.Object) bool {
	of, now, short := shortageOf(o)
	if !short {
		return w.gone(o)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	last, was := w.short[of]
	w.short[of] = now
	return !was || !last.equal(now)
}

func (w *workloads) gone(o client.Object) bool {
	of, _, _ := shortageOf(o)
	w.mu.Lock()
	defer w.mu.Unlock()
	_, was := w.short[of]
	delete(w.short, of)
	return was
}

// lacks says what a workload lacks, if it lacks something.
func (w *workloads) lacks(of node.Workload) (shortage, bool) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	s, short := w.short[of]
	return s, short
}

// unknown says why not all workloads are known, or "".
func (w *workloads) unknown() string {
	for _, kind := range w.watches {
		if why := kind.unknown(); why != "" {
			return why
		}
	}
	return ""
}

// look says why the gate is closed: first what was evicted from the budget's nodes, then what the gate itself selects.
func (w *workloads) look(ctx context.Context, rule *workloadsRule, nodes labels.Selector, a *answer) {
	why := w.unknown()
	if why == "" && rule.namespaces != nil {
		why = w.gates.namespaces.watch.unknown()
	}
	if why != "" {
		a.close(v1alpha1.ReasonWorkloadsUnavailable, why)
		return
	}
	missing, err := w.evicted(ctx, nodes)
	if err != nil {
		a.close(v1alpha1.ReasonWorkloadsUnavailable, err.Error())
		return
	}
	if missing = append(missing, w.selected(rule)...); len(missing) > 0 {
		a.close(v1alpha1.ReasonWorkloadsUnavailable, firstOf(missing, "; "))
	}
}

// selected says which of the workloads that the gate selects lack something.
func (w *workloads) selected(rule *workloadsRule) []string {
	rule.mu.Lock()
	defer rule.mu.Unlock()
	version := w.gates.version.Load()
	if rule.seen == version {
		return rule.last
	}
	var missing []string
	w.mu.RLock()
	for of, s := range w.short {
		switch of.Kind {
		case "Deployment", "StatefulSet", "DaemonSet":
			if selects(rule.selector, s.labels) && w.gates.namespaces.selected(rule.namespaces, of.Namespace) {
				missing = append(missing, describe(of, s))
			}
		}
	}
	w.mu.RUnlock()
	slices.Sort(missing)
	rule.seen, rule.last = version, slices.Clip(missing)
	return rule.last
}

func describe(of node.Workload, s shortage) string {
	return of.Kind + " " + of.Namespace + "/" + of.Name + " " + s.String()
}
