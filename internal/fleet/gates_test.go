// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"errors"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	clientfake "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/yaml"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/rollout"
)

var morning = time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)

// bench is a fleet whose watches a test feeds by hand.
type bench struct {
	*Fleet
	client.Client
	t     *testing.T
	clock *clocktesting.FakePassiveClock
	// woken counts how often waiting rollouts were woken.
	woken int
	// started are the watches and pollers that the manager would run.
	started []func(context.Context)
}

func newBench(t *testing.T, objects ...client.Object) *bench {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), appsv1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, clock: clocktesting.NewFakePassiveClock(morning)}
	b.Client = clientfake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
	b.Fleet = New(b.clock, b.Client, nil)
	b.gates.start = func(run func(context.Context)) { b.started = append(b.started, run) }
	b.OnChange(func() { b.woken++ })
	for _, w := range b.gates.watches {
		w.store = toolscache.NewStore(toolscache.MetaNamespaceKeyFunc)
	}
	return b
}

// synced lets all watches know everything.
func (b *bench) synced() *bench {
	for _, w := range b.gates.watches {
		w.why.Store(ptr.To(""))
	}
	b.gates.notice()
	return b
}

// sees feeds objects to the watches, as informers do.
func (b *bench) sees(objects ...client.Object) *bench {
	b.t.Helper()
	for _, o := range objects {
		w := b.watch(o)
		old, known, err := w.store.Get(o)
		if err := errors.Join(err, w.store.Add(o)); err != nil {
			b.t.Fatal(err)
		}
		if known {
			w.isRelevant.handler(w.noticeKnown).OnUpdate(old, o)
		} else {
			w.isRelevant.handler(w.noticeKnown).OnAdd(o, false)
		}
	}
	return b
}

func (b *bench) loses(o client.Object) *bench {
	b.t.Helper()
	if err := b.watch(o).store.Delete(o); err != nil {
		b.t.Fatal(err)
	}
	b.watch(o).isRelevant.handler(b.watch(o).noticeKnown).OnDelete(o)
	return b
}

func (b *bench) watch(o client.Object) *watch {
	switch o.(type) {
	case *corev1.Pod:
		return b.gates.pods
	case *corev1.Namespace:
		return b.gates.namespaces
	}
	return b.gates.workloads[reflect.TypeOf(o).Elem().Name()]
}

// Budget returns a budget with its closed gates.
func (b *bench) Budget(from *v1alpha1.NodeDisruptionBudget) rollout.Budget {
	b.t.Helper()
	objects, err := b.list(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	r := b.gates.rulesOf(from)
	return *b.gates.withClosedGates(r, &r.budget, b.nodes.read(objects).Evicted, "")
}

// looks at a budget with these gates, in YAML.
func (b *bench) looks(gates string) rollout.Budget {
	b.t.Helper()
	return b.Budget(budgetWith(b.t, gates))
}

func budgetWith(t testing.TB, gates string) *v1alpha1.NodeDisruptionBudget {
	t.Helper()
	from := &v1alpha1.NodeDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "all", UID: "u1", Generation: 1}}
	if err := yaml.UnmarshalStrict([]byte("{gates: "+gates+"}"), &from.Spec); err != nil {
		t.Fatal(err)
	}
	return from
}

func TestGatesThatCantBeRead(t *testing.T) {
	for name, tc := range map[string]struct{ gates, want string }{
		"workloads":            {"{workloads: {selector: {matchExpressions: [{key: a, operator: Equals}]}}}", "spec.gates.workloads.selector: "},
		"workloads namespaces": {"{workloads: {namespaceSelector: {matchExpressions: [{key: a, operator: In}]}}}", "spec.gates.workloads.namespaceSelector: "},
		"pods":                 {"{pods: [{selector: {}}, {selector: {matchLabels: {a: 'b c'}}}]}", "spec.gates.pods[1].selector: "},
		"pods namespaces":      {"{pods: [{selector: {}, namespaceSelector: {matchLabels: {'': b}}}]}", "spec.gates.pods[0].namespaceSelector: "},
		"allow":                {"{alerts: {url: 'http://p', allow: '['}}", "spec.gates.alerts.allow: error parsing regexp: missing closing ]"},
		"deny":                 {"{alerts: {url: 'http://p', deny: 'a)|(b'}}", "spec.gates.alerts.deny: error parsing regexp: unexpected )"},
	} {
		t.Run(name, func(t *testing.T) {
			got := newBench(t).synced().looks(tc.gates)
			if !strings.HasPrefix(got.Error, tc.want) {
				t.Errorf("got %q, want %q…", got.Error, tc.want)
			}
			if len(got.Blocks)+len(got.NodeBlocks) > 0 {
				t.Errorf("blocks %v, %v", got.Blocks, got.NodeBlocks)
			}
		})
	}
}

// What is not known yet is closed, and says so.
func TestGatesAreClosedUntilTheyKnow(t *testing.T) {
	b := newBench(t)
	all := "{workloads: {}, pods: [{selector: {}, namespaceSelector: {matchLabels: {a: b}}}], alerts: {url: 'http://p', whenUnreachable: Open}}"
	want := []rollout.Block{
		{Gate: v1alpha1.ReasonWorkloadsUnavailable, Message: "daemonsets are being read"},
		{Gate: v1alpha1.ReasonPodsBlock, Message: "pods are being read"},
		{Gate: v1alpha1.ReasonAlertsUnreachable, Message: "Prometheus has not been queried yet"},
	}
	if diff := cmp.Diff(want, b.looks(all).Blocks); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, w := range b.gates.watches {
		if !w.wanted {
			t.Errorf("no one reads the %s", w.kind)
		}
	}
	for _, w := range b.gates.watches {
		if w != b.gates.namespaces {
			w.why.Store(ptr.To(""))
		}
	}
	b.gates.workloads["ReplicationController"].why.Store(ptr.To("reading replicationcontrollers, forbidden"))
	want[0].Message, want[1].Message = "reading replicationcontrollers, forbidden", "namespaces are being read"
	if diff := cmp.Diff(want, b.looks(all).Blocks); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Without gates nothing is watched.
func TestGatesWatchNothingUnasked(t *testing.T) {
	b := newBench(t)
	for _, gates := range []string{"{}", "{nodes: {absentTaints: [a]}}"} {
		b.looks(gates)
		clear(b.gates.rules)
	}
	for _, w := range b.gates.watches {
		if w.wanted {
			t.Errorf("the %s are read", w.kind)
		}
	}
	b.looks("{pods: [{selector: {}}]}")
	for _, w := range b.gates.watches {
		if w.wanted != (w == b.gates.pods) {
			t.Errorf("that the %s are read is %t", w.kind, w.wanted)
		}
	}
}

// Waiting rollouts are woken by changes that may open or close a gate, and by no others.
func TestGatesWakeAfterChanges(t *testing.T) {
	b := newBench(t).synced()
	const gates = "{workloads: {selector: {matchLabels: {a: b}}}, pods: [{selector: {matchLabels: {a: b}}}]}"
	b.looks(gates)
	b.woken = 0
	expect := func(what string, want int) {
		t.Helper()
		b.looks(gates)
		if b.woken != want {
			t.Errorf("%s: woken %d times, want %d", what, b.woken, want)
		}
	}
	expect("nothing", 0)
	b.sees(pod("a", "x", "n1"))
	expect("another pod", 0)
	b.sees(labelled(pod("a", "y", "n1")))
	expect("a pod", 1)
	b.sees(labelled(pod("a", "y", "n1")))
	expect("the same pod", 1)
	b.sees(deployment("a", "x", 2, 2))
	expect("a workload that is complete", 1)
	b.sees(labelled(deployment("a", "y", 1, 2)))
	expect("a workload", 2)
	b.sees(labelled(deployment("a", "y", 1, 2)))
	expect("the same workload", 2)
	b.sees(labelled(deployment("a", "y", 2, 2)))
	expect("a workload that is complete again", 3)
	b.loses(labelled(pod("a", "y", "n1")))
	expect("no pod", 4)
}

func labelled[T client.Object](o T) T {
	o.SetLabels(map[string]string{"a": "b"})
	return o
}

func pod(namespace, name, node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: corev1.PodSpec{NodeName: node},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
}

func deployment(namespace, name string, have, want int32) *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       appsv1.DeploymentSpec{Replicas: &want}, Status: appsv1.DeploymentStatus{AvailableReplicas: have},
	}
}

// A budget that is changed, or made anew, is read anew; one that is gone is forgotten.
func TestGatesOfABudgetThatChanges(t *testing.T) {
	b := newBench(t).synced().sees(labelled(pod("a", "x", "n1")))
	from := budgetWith(t, "{pods: [{selector: {matchLabels: {a: b}}, scope: Cluster}]}")
	blocks := func() int { t.Helper(); return len(b.Budget(from).Blocks) }
	if got := blocks(); got != 1 {
		t.Errorf("%d blocks", got)
	}
	from.Spec.Gates.Pods[0].Selector.MatchLabels["a"] = "c"
	from.Generation++
	if got := blocks(); got != 0 {
		t.Errorf("%d blocks after a change", got)
	}
	from.Spec.Gates.Pods[0].Selector.MatchLabels["a"] = "b"
	from.UID = "another"
	if got := blocks(); got != 1 {
		t.Errorf("%d blocks of the new one", got)
	}
	b.gates.read([]*v1alpha1.NodeDisruptionBudget{from})
	if _, err := b.budgets(t.Context()); err != nil { // The API has no budgets.
		t.Fatal(err)
	}
	if got := len(b.gates.rules); got != 0 {
		t.Errorf("%d are remembered", got)
	}
}

// Budgets are sorted, and keep their rules. In the cache they are read again after a change of one of them, and only then; the first time also before
// any change is noticed.
func TestReadBudgets(t *testing.T) {
	b := newBench(t)
	of := func(name string, generation int64, paused bool) *v1alpha1.NodeDisruptionBudget {
		return &v1alpha1.NodeDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Generation: generation}, Spec: v1alpha1.NodeDisruptionBudgetSpec{Paused: paused},
		}
	}
	x, y := of("x", 1, false), of("y", 1, false)
	first := b.gates.read([]*v1alpha1.NodeDisruptionBudget{y, x}).budgets
	if len(first) != 2 || first[0].Name != "x" {
		t.Errorf("%v", first)
	}
	for name, now := range map[string][]*v1alpha1.NodeDisruptionBudget{"changed": {x, of("y", 2, true)}, "another": {x, of("z", 1, true)}} {
		if got := b.gates.read(now).budgets; len(got) != 2 || got[0].Paused || !got[1].Paused || len(b.gates.rules) != 2 {
			t.Errorf("%s: %v", name, got)
		}
	}
	if got := b.gates.read(nil).budgets; len(got)+len(b.gates.rules) > 0 {
		t.Errorf("none: %v", got)
	}
	b.budgetStore = toolscache.NewStore(toolscache.MetaNamespaceKeyFunc)
	for i, want := range []int{1, 1, 3} {
		if i == 2 {
			b.budgetChanges.Add(1)
		}
		err := b.budgetStore.Add(of(strconv.Itoa(i), 1, false))
		known, readErr := b.budgets(t.Context())
		if err := errors.Join(err, readErr); err != nil {
			t.Fatal(err)
		}
		if got := len(known.budgets); got != want {
			t.Errorf("look %d: %d budgets, want %d", i, got, want)
		}
	}
}

func TestTrims(t *testing.T) {
	two, yes := int32(2), true
	meta := metav1.ObjectMeta{
		Namespace: "a", Name: "x", UID: "u", ResourceVersion: "1", Generation: 3, Labels: map[string]string{"a": "b"},
		Annotations: map[string]string{"much": "text"}, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}},
		OwnerReferences: []metav1.OwnerReference{{Name: "other"}, {Name: "owner", Controller: &yes}}, Finalizers: []string{"f"},
	}
	kept := metav1.ObjectMeta{
		Namespace: "a", Name: "x", UID: "u", ResourceVersion: "1", Generation: 3, Labels: map[string]string{"a": "b"},
		OwnerReferences: []metav1.OwnerReference{{Name: "owner", Controller: &yes}},
	}
	template := corev1.PodTemplateSpec{Spec: corev1.PodSpec{NodeName: "n"}}
	static, mirror := *meta.DeepCopy(), *kept.DeepCopy()
	static.Annotations[corev1.MirrorPodAnnotationKey] = "m"
	mirror.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "m"}
	for _, tc := range []struct{ from, want client.Object }{
		{
			&corev1.Pod{ObjectMeta: static, Spec: corev1.PodSpec{
				NodeName: "n1", Priority: &two, HostNetwork: true, Containers: []corev1.Container{{Name: "c"}},
				Volumes: []corev1.Volume{{Name: "e", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
			}, Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.1"}},
			&corev1.Pod{
				ObjectMeta: mirror, Spec: corev1.PodSpec{NodeName: "n1"},
				Status: corev1.PodStatus{Phase: corev1.PodRunning},
			},
		},
		{
			&appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Replicas: &two, Template: template}, Status: appsv1.DeploymentStatus{ObservedGeneration: 2, AvailableReplicas: 1, Conditions: []appsv1.DeploymentCondition{{}}}},
			&appsv1.Deployment{ObjectMeta: kept, Spec: appsv1.DeploymentSpec{Replicas: &two}, Status: appsv1.DeploymentStatus{ObservedGeneration: 2, AvailableReplicas: 1}},
		},
		{
			&appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{Replicas: &two, Template: template}, Status: appsv1.StatefulSetStatus{ObservedGeneration: 2, AvailableReplicas: 1, Conditions: []appsv1.StatefulSetCondition{{}}}},
			&appsv1.StatefulSet{ObjectMeta: kept, Spec: appsv1.StatefulSetSpec{Replicas: &two}, Status: appsv1.StatefulSetStatus{ObservedGeneration: 2, AvailableReplicas: 1}},
		},
		{
			&appsv1.DaemonSet{ObjectMeta: meta, Spec: appsv1.DaemonSetSpec{Template: template}, Status: appsv1.DaemonSetStatus{ObservedGeneration: 2, DesiredNumberScheduled: 3, NumberAvailable: 1, Conditions: []appsv1.DaemonSetCondition{{}}}},
			&appsv1.DaemonSet{ObjectMeta: kept, Status: appsv1.DaemonSetStatus{ObservedGeneration: 2, DesiredNumberScheduled: 3, NumberAvailable: 1}},
		},
		{
			&appsv1.ReplicaSet{ObjectMeta: meta, Spec: appsv1.ReplicaSetSpec{Replicas: &two, Template: template}, Status: appsv1.ReplicaSetStatus{ObservedGeneration: 2, AvailableReplicas: 1, Conditions: []appsv1.ReplicaSetCondition{{}}}},
			&appsv1.ReplicaSet{ObjectMeta: kept, Spec: appsv1.ReplicaSetSpec{Replicas: &two}, Status: appsv1.ReplicaSetStatus{ObservedGeneration: 2, AvailableReplicas: 1}},
		},
		{
			&corev1.ReplicationController{ObjectMeta: meta, Spec: corev1.ReplicationControllerSpec{Replicas: &two, Template: &template}, Status: corev1.ReplicationControllerStatus{ObservedGeneration: 2, AvailableReplicas: 1, Conditions: []corev1.ReplicationControllerCondition{{}}}},
			&corev1.ReplicationController{ObjectMeta: kept, Spec: corev1.ReplicationControllerSpec{Replicas: &two}, Status: corev1.ReplicationControllerStatus{ObservedGeneration: 2, AvailableReplicas: 1}},
		},
		{
			&edsv1.ExtendedDaemonSet{
				ObjectMeta: meta, Spec: edsv1.ExtendedDaemonSetSpec{Template: template}, Status: edsv1.ExtendedDaemonSetStatus{ObservedGeneration: 2, Desired: 3, Available: 1, Ready: 1},
			},
			&edsv1.ExtendedDaemonSet{ObjectMeta: kept, Status: edsv1.ExtendedDaemonSetStatus{ObservedGeneration: 2, Desired: 3, Available: 1}},
		},
		{
			&corev1.Namespace{ObjectMeta: meta, Spec: corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{"f"}}, Status: corev1.NamespaceStatus{Phase: corev1.NamespaceActive}},
			&corev1.Namespace{ObjectMeta: kept},
		},
	} {
		trim := TrimWorkload
		if _, ok := tc.from.(*corev1.Pod); ok {
			trim = TrimPod
		}
		got, err := trim(tc.from.DeepCopyObject())
		if diff := cmp.Diff(any(tc.want), got); err != nil || diff != "" {
			t.Errorf("%T: %v (-want +got):\n%s", tc.from, err, diff)
		}
	}
}
