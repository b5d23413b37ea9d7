// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"errors"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/yaml"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/rollout"
)

func TestShortage(t *testing.T) {
	zero, two := int32(0), int32(2)
	meta := metav1.ObjectMeta{Namespace: "shop", Name: "cart", Generation: 4}
	deleted := meta
	deleted.DeletionTimestamp = &metav1.Time{Time: morning}
	for name, tc := range map[string]struct {
		of   client.Object
		want string // "" is well
	}{
		"Deployment":                  {&appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Replicas: &two}, Status: appsv1.DeploymentStatus{ObservedGeneration: 4, AvailableReplicas: 1}}, "Deployment shop/cart has 1 of 2 available"},
		"Deployment, well":            {&appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Replicas: &two}, Status: appsv1.DeploymentStatus{ObservedGeneration: 4, AvailableReplicas: 2}}, ""},
		"Deployment, more":            {&appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Replicas: &two}, Status: appsv1.DeploymentStatus{ObservedGeneration: 5, AvailableReplicas: 3}}, ""},
		"Deployment, default":         {&appsv1.Deployment{ObjectMeta: meta, Status: appsv1.DeploymentStatus{ObservedGeneration: 4}}, "Deployment shop/cart has 0 of 1 available"},
		"Deployment, none":            {&appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Replicas: &zero}, Status: appsv1.DeploymentStatus{ObservedGeneration: 4}}, ""},
		"Deployment, changed":         {&appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Replicas: &two}, Status: appsv1.DeploymentStatus{ObservedGeneration: 3, AvailableReplicas: 2}}, "Deployment shop/cart has changed, and its controller has not observed it yet"},
		"Deployment, deleted":         {&appsv1.Deployment{ObjectMeta: deleted, Spec: appsv1.DeploymentSpec{Replicas: &two}}, ""},
		"StatefulSet":                 {&appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{Replicas: &two}, Status: appsv1.StatefulSetStatus{ObservedGeneration: 4, ReadyReplicas: 2, AvailableReplicas: 1}}, "StatefulSet shop/cart has 1 of 2 available"},
		"StatefulSet, well":           {&appsv1.StatefulSet{ObjectMeta: meta, Status: appsv1.StatefulSetStatus{ObservedGeneration: 4, AvailableReplicas: 1}}, ""},
		"DaemonSet":                   {&appsv1.DaemonSet{ObjectMeta: meta, Status: appsv1.DaemonSetStatus{ObservedGeneration: 4, DesiredNumberScheduled: 5, NumberAvailable: 4}}, "DaemonSet shop/cart has 4 of 5 available"},
		"DaemonSet, on no node":       {&appsv1.DaemonSet{ObjectMeta: meta, Status: appsv1.DaemonSetStatus{ObservedGeneration: 4}}, ""},
		"ReplicaSet":                  {&appsv1.ReplicaSet{ObjectMeta: meta, Spec: appsv1.ReplicaSetSpec{Replicas: &two}, Status: appsv1.ReplicaSetStatus{ObservedGeneration: 4}}, "ReplicaSet shop/cart has 0 of 2 available"},
		"ReplicationController":       {&corev1.ReplicationController{ObjectMeta: meta, Spec: corev1.ReplicationControllerSpec{Replicas: &two}, Status: corev1.ReplicationControllerStatus{ObservedGeneration: 4}}, "ReplicationController shop/cart has 0 of 2 available"},
		"ReplicationController, well": {&corev1.ReplicationController{ObjectMeta: meta, Spec: corev1.ReplicationControllerSpec{Replicas: &two}, Status: corev1.ReplicationControllerStatus{ObservedGeneration: 4, AvailableReplicas: 2}}, ""},
		"ExtendedDaemonSet":           {&edsv1.ExtendedDaemonSet{ObjectMeta: meta, Status: edsv1.ExtendedDaemonSetStatus{ObservedGeneration: 4, Desired: 5, Available: 4}}, "ExtendedDaemonSet shop/cart has 4 of 5 available"},
		"Job":                         {&batchv1.Job{ObjectMeta: meta, Spec: batchv1.JobSpec{Parallelism: &two}, Status: batchv1.JobStatus{Ready: ptr.To[int32](1)}}, "Job shop/cart has 1 of 2 available"},
		"Job, well":                   {&batchv1.Job{ObjectMeta: meta, Status: batchv1.JobStatus{Ready: ptr.To[int32](1)}}, ""},
		"Job, almost complete":        {&batchv1.Job{ObjectMeta: meta, Spec: batchv1.JobSpec{Parallelism: &two, Completions: ptr.To[int32](9)}, Status: batchv1.JobStatus{Ready: ptr.To[int32](1), Succeeded: 8}}, ""},
		"Job, a queue that runs dry":  {&batchv1.Job{ObjectMeta: meta, Spec: batchv1.JobSpec{Parallelism: &two}, Status: batchv1.JobStatus{Succeeded: 1}}, ""},
		"Job, suspended":              {&batchv1.Job{ObjectMeta: meta, Spec: batchv1.JobSpec{Suspend: ptr.To(true)}}, ""},
		"Job, failed":                 {&batchv1.Job{ObjectMeta: meta, Status: batchv1.JobStatus{Conditions: []batchv1.JobCondition{{Type: batchv1.JobFailed, Status: corev1.ConditionTrue}}}}, ""},
		"something else":              {&corev1.ConfigMap{ObjectMeta: meta}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			if lacks := shortage(tc.of); lacks != "" {
				got = reflect.TypeOf(tc.of).Elem().Name() + " " + tc.of.GetNamespace() + "/" + tc.of.GetName() + " " + lacks
			}
			if got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func namespace(name string, labels map[string]string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
}

func replicaSet(namespace, name string, have, want int32) *appsv1.ReplicaSet {
	return &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       appsv1.ReplicaSetSpec{Replicas: &want}, Status: appsv1.ReplicaSetStatus{AvailableReplicas: have},
	}
}

func job(namespace, name string, labels map[string]string) *batchv1.Job {
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	j.Spec.Template.Labels = labels
	return j
}

func disruptionBudget(namespace, name string, labels map[string]string) *policyv1.PodDisruptionBudget {
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}},
	}
}

func evictedFrom(name, record string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{"node": name}, Annotations: map[string]string{v1alpha1.AnnotationEvicted: record},
	}}
}

func TestWorkloadsGate(t *testing.T) {
	live := namespace("shop", map[string]string{"env": "live"})
	for name, tc := range map[string]struct {
		gates   string
		nodes   []client.Object
		objects []client.Object
		want    string // "" is open
	}{
		"all are well": {gates: "{}", objects: []client.Object{deployment("shop", "cart", 2, 2)}},
		"one is short": {
			gates: "{}", objects: []client.Object{deployment("shop", "cart", 1, 2), deployment("shop", "web", 2, 2)},
			want: "Deployment shop/cart has 1 of 2 available",
		},
		"many are short": {
			gates: "{}", objects: []client.Object{deployment("shop", "d", 0, 1), deployment("shop", "a", 0, 1), deployment("shop", "b", 0, 1), deployment("shop", "c", 0, 1), deployment("shop", "e", 0, 1)},
			want: "Deployment shop/a has 0 of 1 available; Deployment shop/b has 0 of 1 available; Deployment shop/c has 0 of 1 available and 2 more",
		},
		"one that is not selected is short": {gates: "{selector: {matchLabels: {a: b}}}", objects: []client.Object{deployment("shop", "cart", 1, 2)}},
		"one that is selected is short": {
			gates: "{selector: {matchLabels: {a: b}}}", objects: []client.Object{labelled(deployment("shop", "cart", 1, 2))},
			want: "Deployment shop/cart has 1 of 2 available",
		},
		"another namespace": {
			gates: "{namespaceSelector: {matchLabels: {env: test}}}", objects: []client.Object{live, deployment("shop", "cart", 1, 2)},
		},
		"the namespace": {
			gates: "{namespaceSelector: {matchLabels: {env: live}}}", objects: []client.Object{live, deployment("shop", "cart", 1, 2)},
			want: "Deployment shop/cart has 1 of 2 available",
		},
		"a namespace of which nothing is known": {
			gates: "{namespaceSelector: {matchLabels: {env: test}}}", objects: []client.Object{deployment("new", "cart", 1, 2)},
			want: "Deployment new/cart has 1 of 2 available",
		},
		"a ReplicaSet of a Deployment by itself": {gates: "{}", objects: []client.Object{replicaSet("shop", "cart-5d4f", 1, 2)}},
		"a Job with a PodDisruptionBudget": {
			gates: "{}", want: "Job shop/train has 0 of 1 available", objects: []client.Object{
				job("shop", "train", map[string]string{"app": "train"}), job("shop", "other", nil),
				disruptionBudget("shop", "train", map[string]string{"app": "train"}), disruptionBudget("shop", "all", nil),
			},
		},
		"a Job without one": {gates: "{}", objects: []client.Object{
			job("shop", "train", map[string]string{"app": "train"}), disruptionBudget("shop", "web", map[string]string{"app": "web"}),
			disruptionBudget("other", "train", map[string]string{"app": "train"}),
		}},
		"evicted, whatever the gate selects": {
			gates:   "{selector: {matchLabels: {a: b}}, namespaceSelector: {matchLabels: {env: test}}}",
			nodes:   []client.Object{evictedFrom("n1", `["ReplicaSet/shop/cart-5d4f"]`)},
			objects: []client.Object{live, replicaSet("shop", "cart-5d4f", 1, 2)},
			want:    "evicted from n1: ReplicaSet shop/cart-5d4f has 1 of 2 available",
		},
		"evicted, and available again": {
			gates: "{}", nodes: []client.Object{evictedFrom("n1", `["ReplicaSet/shop/cart-5d4f"]`)}, objects: []client.Object{replicaSet("shop", "cart-5d4f", 2, 2)},
		},
		"evicted, and gone": {gates: "{}", nodes: []client.Object{evictedFrom("n1", `["ReplicaSet/shop/cart-5d4f"]`)}},
		"evicted from a node of no concern": {
			gates: "{}", nodes: []client.Object{evictedFrom("other", `["ReplicaSet/shop/cart-5d4f"]`)}, objects: []client.Object{replicaSet("shop", "cart-5d4f", 1, 2)},
		},
		"evicted comes first": {
			gates:   "{}",
			nodes:   []client.Object{evictedFrom("n2", `["ReplicaSet/shop/b"]`), evictedFrom("n1", `["ReplicaSet/shop/b"]`)},
			objects: []client.Object{deployment("shop", "a", 1, 2), replicaSet("shop", "b", 1, 2)},
			want:    "evicted from n1: ReplicaSet shop/b has 1 of 2 available; evicted from n2: ReplicaSet shop/b has 1 of 2 available; Deployment shop/a has 1 of 2 available",
		},
		"a record that can't be read concerns its node alone": {
			gates: "{}", nodes: []client.Object{evictedFrom("n1", "shop/b")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, tc.nodes...).synced().sees(tc.objects...)
			from := budgetWith(t, "{workloads: "+tc.gates+"}")
			from.Spec.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "node", Operator: "In", Values: []string{"n1", "n2"}}}}
			var want []rollout.Block
			if tc.want != "" {
				want = []rollout.Block{{Gate: v1alpha1.ReasonWorkloadsUnavailable, Message: tc.want}}
			}
			for range 2 { // The second time from memory.
				if diff := cmp.Diff(want, b.Budget(from).Blocks); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			}
		})
	}
}

// A namespace gets other labels, a workload other numbers, a node another record.
func TestWorkloadsGateNoticesChanges(t *testing.T) {
	n1 := evictedFrom("n1", `["ReplicaSet/shop/b"]`)
	b := newBench(t, n1).synced().sees(namespace("shop", map[string]string{"env": "live"}), deployment("shop", "a", 1, 2))
	const gates = "{workloads: {namespaceSelector: {matchLabels: {env: live}}}}"
	expect := func(want string) {
		t.Helper()
		got := ""
		for _, block := range b.looks(gates).Blocks {
			got += block.Message
		}
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	expect("Deployment shop/a has 1 of 2 available")
	b.sees(namespace("shop", map[string]string{"env": "test"}))
	expect("")
	b.sees(namespace("shop", map[string]string{"env": "live"}), deployment("shop", "a", 0, 2))
	expect("Deployment shop/a has 0 of 2 available")
	b.loses(deployment("shop", "a", 0, 2))
	expect("")
	b.sees(replicaSet("shop", "c", 0, 1))
	expect("")
	n1.Annotations[v1alpha1.AnnotationEvicted] = `["ReplicaSet/shop/c"]`
	if err := b.Update(t.Context(), n1); err != nil {
		t.Fatal(err)
	}
	expect("evicted from n1: ReplicaSet shop/c has 0 of 1 available")
	n1.Annotations = nil
	if err := b.Update(t.Context(), n1); err != nil {
		t.Fatal(err)
	}
	expect("")
}

// An ExtendedDaemonSet that is short of pods closes the gate for all but itself.
func TestWorkloadsGateSeesDaemonSets(t *testing.T) {
	b := newBench(t)
	b.DaemonSets(func(context.Context) ([]reconcile.Request, error) { return nil, nil })
	b.gates.workloads[kindDaemonSet].store = toolscache.NewStore(toolscache.MetaNamespaceKeyFunc)
	b.gates.workloads[kindDaemonSet].why.Store(ptr.To(""))
	short := &edsv1.ExtendedDaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "agent"}, Status: edsv1.ExtendedDaemonSetStatus{Desired: 2, Available: 1}}
	if err := b.Client.Create(t.Context(), budgetWith(t, "{workloads: {}}")); err != nil {
		t.Fatal(err)
	}
	b.synced().sees(short)
	for workload, want := range map[string]int{"": 1, "ExtendedDaemonSet/ns/other": 1, "DaemonSet/ns/agent": 1, "ExtendedDaemonSet/ns/agent": 0} {
		s, err := b.SnapshotFor(t.Context(), workload)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Gates(&s.Budgets[0]).Blocks; len(got) != want || want == 1 && got[0].Message != "ExtendedDaemonSet ns/agent has 1 of 2 available" {
			t.Errorf("for %q: %+v", workload, got)
		}
	}
}

// Objects of kinds that the gate names are read as it says. Until they can be read it is closed.
func TestWorkloadsGateSeesNamedKinds(t *testing.T) {
	cluster := func(fields string) *unstructured.Unstructured {
		o := &unstructured.Unstructured{}
		raw, err := yaml.YAMLToJSON([]byte("{apiVersion: a.b/v1, kind: Cluster, metadata: {namespace: shop, name: db, generation: 2, labels: {a: b}}, " + fields + "}"))
		if err := errors.Join(err, o.UnmarshalJSON(raw)); err != nil {
			t.Fatal(err)
		}
		return o
	}
	const instances = "desired: spec.instances, ready: status.up"
	for name, tc := range map[string]struct{ gate, fields, want string }{
		"short":              {"", "spec: {replicas: 3}, status: {readyReplicas: 2}", "Cluster shop/db has 2 of 3 available"},
		"well":               {"", "spec: {replicas: 3}, status: {readyReplicas: 3}", ""},
		"none":               {"", "spec: {replicas: 3}", "Cluster shop/db has 0 of 3 available"},
		"observed":           {"", "spec: {replicas: 3}, status: {readyReplicas: 3, observedGeneration: 2}", ""},
		"not observed":       {"", "spec: {replicas: 3}, status: {readyReplicas: 3, observedGeneration: 1}", "Cluster shop/db has changed, and its controller has not observed it yet"},
		"other fields":       {instances, "spec: {instances: 3}, status: {up: 2}", "Cluster shop/db has 2 of 3 available"},
		"not a number":       {instances, "spec: {instances: many}", "Cluster shop/db can't be read: .spec.instances accessor error: many is of the type string, expected int64"},
		"no such field":      {"", "spec: {instances: 3}", "Cluster shop/db has no spec.replicas"},
		"it is not selected": {"", "spec: {replicas: 3}", ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t).synced()
			selected := "a: b"
			if name == "it is not selected" {
				selected = "a: c"
			}
			if tc.gate == "" {
				tc.gate = "desired: spec.replicas, ready: status.readyReplicas" // The API server sets these.
			}
			gates := "{workloads: {selector: {matchLabels: {" + selected + "}}, kinds: [{apiVersion: a.b/v1, kind: Cluster, " + tc.gate + "}]}}"
			if got := b.looks(gates).Blocks; len(got) != 1 || got[0].Message != "a.b/v1 Cluster are being read" {
				t.Fatalf("before it is read: %+v", got)
			}
			for _, w := range b.gates.kinds {
				w.setUnknown("reading a.b/v1 Cluster, forbidden")
				if got := b.looks(gates).Blocks; !w.wanted || len(got) != 1 || got[0].Message != "reading a.b/v1 Cluster, forbidden" {
					t.Fatalf("when it may not be read: %+v", got)
				}
				w.store = toolscache.NewStore(toolscache.MetaNamespaceKeyFunc)
				if err := w.store.Add(cluster(tc.fields)); err != nil {
					t.Fatal(err)
				}
				w.setUnknown("")
			}
			got := ""
			for _, block := range b.looks(gates).Blocks {
				got += block.Message
			}
			if got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestRecovered(t *testing.T) {
	evicted := []v1alpha1.Workload{{Kind: "ReplicaSet", Namespace: "shop", Name: "a"}, {Kind: "StatefulSet", Namespace: "shop", Name: "b"}}
	for name, tc := range map[string]struct {
		budgets  []client.Object
		unsynced bool
		objects  []client.Object
		want     bool
	}{
		"no budget":                 {objects: []client.Object{replicaSet("shop", "a", 0, 1)}, want: true},
		"no gate":                   {budgets: []client.Object{budgetWith(t, "{pods: [{selector: {}}]}")}, objects: []client.Object{replicaSet("shop", "a", 0, 1)}, want: true},
		"one is not available":      {budgets: []client.Object{budgetWith(t, "{workloads: {}}")}, objects: []client.Object{replicaSet("shop", "a", 0, 1)}},
		"all are available or gone": {budgets: []client.Object{budgetWith(t, "{workloads: {}}")}, objects: []client.Object{replicaSet("shop", "a", 1, 1)}, want: true},
		"nothing is known yet":      {budgets: []client.Object{budgetWith(t, "{workloads: {}}")}, unsynced: true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, tc.budgets...).sees(tc.objects...)
			if !tc.unsynced {
				b.synced()
			}
			s, err := b.Snapshot(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if got := b.Recovered(&s, evicted); got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
			}
		})
	}
}
