// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/rollout"
)

// workloadsRule is a workloads gate.
type workloadsRule struct {
	selector, namespaces labels.Selector
	// kinds are those that the gate names, and watches their watches.
	kinds   []v1alpha1.WorkloadKind
	watches []*watch

	mu sync.Mutex
	// missing are the selected workloads that lack pods, sorted, at a version.
	missing []missing
	version uint64
}

// missing is what a workload lacks.
type missing struct{ workload, text string }

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
		kindJob: newWatch(g, "jobs", &batchv1.Job{}, &batchv1.JobList{}, shortageChanged),
		kindPDB: newWatch(g, "poddisruptionbudgets", &policyv1.PodDisruptionBudget{}, &policyv1.PodDisruptionBudgetList{}, SpecChanged),
	}
}

const (
	kindJob = "Job"
	kindPDB = "PodDisruptionBudget"
)

// gated are the kinds that a gate selects. Other workloads belong to one of these, or are recorded when their pods
// are evicted.
var gated = []string{"DaemonSet", "Deployment", kindDaemonSet, kindJob, "StatefulSet"}

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
	case *edsv1.ExtendedDaemonSet:
		observed, have, want = o.Status.ObservedGeneration, o.Status.Available, o.Status.Desired
	case *batchv1.Job:
		observed, have, want = o.Generation, ptr.Deref(o.Status.Ready, 0), podsOfJob(o)
	default:
		return ""
	}
	return shortText(o, observed, int64(have), int64(want))
}

func shortText(o client.Object, observed, have, want int64) string {
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

// podsOfJob returns how many pods a Job should have now. A Job without completions needs no more pods once one has succeeded.
func podsOfJob(j *batchv1.Job) int32 {
	ended := slices.ContainsFunc(j.Status.Conditions, func(c batchv1.JobCondition) bool {
		return c.Status == corev1.ConditionTrue && c.Type != batchv1.JobSuspended
	})
	switch want := ptr.Deref(j.Spec.Parallelism, 1); {
	case ended || ptr.Deref(j.Spec.Suspend, false):
		return 0
	case j.Spec.Completions != nil:
		return min(want, *j.Spec.Completions-j.Status.Succeeded)
	case j.Status.Succeeded > 0:
		return 0
	default:
		return want
	}
}

// isProtected reports whether a PodDisruptionBudget selects the pods of a Job by their labels.
func (g *gates) isProtected(j *batchv1.Job) bool {
	return slices.ContainsFunc(objectsOf[*policyv1.PodDisruptionBudget](g.workloads[kindPDB].store), func(b *policyv1.PodDisruptionBudget) bool {
		s, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
		return b.Namespace == j.Namespace && err == nil && !s.Empty() && s.Matches(labels.Set(j.Spec.Template.Labels))
	})
}

var shortageChanged = changedBy(shortage)

// changedBy reports changes of what an object lacks.
func changedBy(shortage func(client.Object) string) isRelevant {
	return func(old, now client.Object) bool {
		before, after := shortage(old), shortage(now)
		return before != after || after != "" && !maps.Equal(old.GetLabels(), now.GetLabels())
	}
}

// shortageOfKind returns what an object of a kind that a gate names lacks, or "". The object may be nil.
func shortageOfKind(kind v1alpha1.WorkloadKind) func(client.Object) string {
	return func(object client.Object) string {
		o, ok := object.(*unstructured.Unstructured)
		if !ok || o.GetDeletionTimestamp() != nil {
			return ""
		}
		number := func(path string) (n int64, found bool, err error) {
			return unstructured.NestedInt64(o.Object, strings.Split(path, ".")...)
		}
		want, hasDesired, err1 := number(kind.Desired)
		have, _, err2 := number(kind.Ready)
		observed, hasObserved, err3 := number("status.observedGeneration")
		switch err := cmp.Or(err1, err2, err3); {
		case err != nil:
			return "can't be read: " + err.Error()
		case !hasDesired:
			return "has no " + kind.Desired
		case !hasObserved:
			observed = o.GetGeneration()
		}
		return shortText(o, observed, have, want)
	}
}

// watchOf returns the watch of a kind that a gate names. The caller holds the lock of the gates.
func (g *gates) watchOf(kind v1alpha1.WorkloadKind) *watch {
	if w := g.kinds[kind]; w != nil {
		return w
	}
	object, list := &unstructured.Unstructured{}, &unstructured.UnstructuredList{}
	gvk := schema.FromAPIVersionAndKind(kind.APIVersion, kind.Kind)
	object.SetGroupVersionKind(gvk)
	list.SetGroupVersionKind(gvk.GroupVersion().WithKind(kind.Kind + "List"))
	w := newWatch(g, kind.APIVersion+" "+kind.Kind, object, list, changedBy(shortageOfKind(kind)))
	w.from, g.kinds[kind] = g.pods.from, w
	return w
}

// unknownWorkloads returns why the workloads are not known, or the namespaces of a rule that selects by them; or "".
func (g *gates) unknownWorkloads(rule *workloadsRule) string {
	for _, kind := range slices.Sorted(maps.Keys(g.workloads)) {
		if why := g.workloads[kind].whyUnknown(); why != "" {
			return why
		}
	}
	if rule == nil {
		return ""
	}
	for _, w := range rule.watches {
		if why := w.whyUnknown(); why != "" {
			return why
		}
	}
	if rule.namespaces != nil {
		return g.namespaces.whyUnknown()
	}
	return ""
}

// closedByWorkloads returns why the workloads gate is closed, or "". It names first evicted workloads of the budget's nodes,
// then selected workloads, but for except.
func (g *gates) closedByWorkloads(rule *workloadsRule, nodes labels.Selector, evicted []*corev1.Node, except string) string {
	if why := g.unknownWorkloads(rule); why != "" {
		return why
	}
	return firstOf(append(g.missingEvicted(nodes, evicted), g.missingSelected(rule, except)...), "; ")
}

// missingSelected returns the selected workloads that lack pods, but for except. It looks at all again only after a relevant change.
func (g *gates) missingSelected(rule *workloadsRule, except string) (texts []string) {
	version := g.version.Load()
	rule.mu.Lock()
	defer rule.mu.Unlock()
	if rule.version != version {
		rule.missing, rule.version = g.findMissing(rule), version
	}
	for _, m := range rule.missing {
		if m.workload != except {
			texts = append(texts, m.text)
		}
	}
	return texts
}

func (g *gates) findMissing(rule *workloadsRule) (all []missing) {
	look := func(w *watch, kind string, lackOf func(client.Object) string) {
		for _, o := range objectsOf[client.Object](w.store) {
			lacks := lackOf(o)
			if lacks == "" || rule.selector != nil && !rule.selector.Matches(labels.Set(o.GetLabels())) {
				continue
			}
			job, isJob := o.(*batchv1.Job)
			name := client.ObjectKeyFromObject(o).String()
			if isJob && !g.isProtected(job) {
				continue
			}
			if rollout.SelectsNamespace(rule.namespaces, o.GetNamespace(), g.namespaceLabels) {
				all = append(all, missing{kind + "/" + name, kind + " " + name + " " + lacks})
			}
		}
	}
	for _, kind := range gated {
		if w := g.workloads[kind]; w != nil {
			look(w, kind, shortage)
		}
	}
	for i, kind := range rule.kinds {
		look(rule.watches[i], kind.Kind, shortageOfKind(kind))
	}
	slices.SortFunc(all, func(a, b missing) int { return strings.Compare(a.text, b.text) })
	return all
}

// missingEvicted returns the workloads that were evicted from selected nodes and are not available again.
func (g *gates) missingEvicted(selector labels.Selector, nodes []*corev1.Node) (missing []string) {
	for _, n := range nodes {
		if !selector.Matches(labels.Set(n.Labels)) {
			continue
		}
		evicted, _ := v1alpha1.ParseEvicted(n.Annotations) // An unreadable record makes its node unavailable.
		for _, of := range evicted {
			if lacks := g.shortageOf(of); lacks != "" {
				missing = append(missing, "evicted from "+n.Name+": "+of.Kind+" "+of.Namespace+"/"+of.Name+" "+lacks)
			}
		}
	}
	return missing
}

// shortageOf returns what an evicted workload lacks, or "".
func (g *gates) shortageOf(of v1alpha1.Workload) string {
	if w := g.workloads[of.Kind]; w != nil {
		return shortage(w.get(of.Namespace, of.Name))
	}
	return ""
}

// Recovered reports whether the record of these evictions can be removed: all workloads are available again or deleted, or
// no budget has a workloads gate.
func (f *Fleet) Recovered(s *Snapshot, evicted []v1alpha1.Workload) bool {
	if !slices.ContainsFunc(s.Budgets, func(b rollout.Budget) bool { return b.Workloads }) {
		return true
	}
	return f.gates.unknownWorkloads(nil) == "" &&
		!slices.ContainsFunc(evicted, func(of v1alpha1.Workload) bool { return f.gates.shortageOf(of) != "" })
}
