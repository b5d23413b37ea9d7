// SPDX-License-Identifier: Apache-2.0

package turn

import (
	"context"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/fleet"
	"moult.dev/moult/internal/status"
)

func TestRolloutsOfNode(t *testing.T) {
	// Of a scheme that does not know the type, so that what can't be read is stored, too.
	scheme := runtime.NewScheme()
	scheme.AddKnownTypeWithName(GroupVersionKind, &unstructured.Unstructured{})
	scheme.AddKnownTypeWithName(v1alpha1.GroupVersion.WithKind(Kind+"List"), &unstructured.UnstructuredList{})
	made := func(name string, selector any) client.Object {
		o := Object()
		o.SetName(name)
		o.Object["spec"] = map[string]any{"nodeSelector": selector}
		return o
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		made("all", map[string]any{}),
		made("red", map[string]any{"matchLabels": map[string]any{"colour": "red"}}),
		made("malformed", "x"),
		made("unreadable", map[string]any{"matchLabels": map[string]any{"colour": int64(7)}}),
		made("invalid", map[string]any{"matchExpressions": []any{map[string]any{"key": "a", "operator": "Near"}}}),
	).Build()
	held := func(holder string) func(*corev1.Node) {
		return holding(v1alpha1.Claim{Rollout: holder, UID: "x"})
	}
	for name, tc := range map[string]struct {
		nodes []client.Object
		want  string
	}{
		"any node":                        {[]client.Object{newNode()}, "all"},
		"a red one":                       {[]client.Object{newNode(labelled("colour", "red"))}, "all red"},
		"one that was red":                {[]client.Object{newNode(labelled("colour", "red")), newNode()}, "all red"},
		"one with a claim":                {[]client.Object{newNode(held("NodeRollout/gone"))}, "all gone"},
		"one that had a claim":            {[]client.Object{newNode(held("NodeRollout/gone")), newNode()}, "all gone"},
		"one with another's claim":        {[]client.Object{newNode(held("Plan/a/b"))}, "all"},
		"one with claims no one can read": {[]client.Object{newNode(annotated(v1alpha1.AnnotationClaims, "{"))}, "all"},
		"one with a mark":                 {[]client.Object{newNode(cordonedBy("NodeRollout/gone"))}, "all gone"},
		"one with the taint": {[]client.Object{newNode(tainted("noderollout.outdated.moult.dev/gone", "NoSchedule"),
			tainted("plan.outdated.moult.dev/plan", "PreferNoSchedule"), tainted("noderollout.outdated.moult.dev/left", "PreferNoSchedule"))}, "all left"},
		"one with the other mark": {[]client.Object{newNode(annotated(v1alpha1.AnnotationExcludedBy, "NodeRollout/gone"))}, "all gone"},
	} {
		var names []string
		for _, r := range RolloutsOfNode(c, GroupVersionKind, "", func(r *unstructured.Unstructured) bool { return !Replaces(r) })(t.Context(), tc.nodes...) {
			names = append(names, r.Name)
		}
		slices.Sort(names)
		if got := strings.Join(names, " "); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

// A controller is not woken for the rollouts of the other one.
func TestRolloutsOfTheOther(t *testing.T) {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypeWithName(GroupVersionKind, &unstructured.Unstructured{})
	scheme.AddKnownTypeWithName(v1alpha1.GroupVersion.WithKind(Kind+"List"), &unstructured.UnstructuredList{})
	made := func(name, what string) client.Object {
		o := Object()
		o.SetName(name)
		o.Object["spec"] = map[string]any{"nodeSelector": map[string]any{}, what: map[string]any{}}
		return o
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(made("hosts", "hostUpdate"), made("machines", "replacement")).Build()
	claimed := func(name, machine string) *corev1.Node {
		return newNode(holding(v1alpha1.Claim{Rollout: "NodeRollout/" + name, UID: "x", Machine: machine}))
	}
	marked := func(key, name string) *corev1.Node { return newNode(annotated(key, "NodeRollout/"+name)) }
	for what, tc := range map[string]struct {
		node                *corev1.Node
		hosts, replacements string
	}{
		"nothing on it":                {newNode(), "hosts", "machines"},
		"updated":                      {claimed("hosts", ""), "hosts", "machines"},
		"replaced":                     {claimed("machines", "i-1"), "hosts", "machines"},
		"cordoned":                     {marked(v1alpha1.AnnotationCordonedBy, "hosts"), "hosts", "machines"},
		"cordoned to be replaced":      {marked(v1alpha1.AnnotationCordonedBy, "machines"), "hosts", "machines"},
		"kept from the autoscaler":     {marked(v1alpha1.AnnotationScaleDownBy, "machines"), "hosts", "machines"},
		"updated by one that is gone":  {claimed("gone", ""), "gone hosts", "gone machines"},
		"cordoned by one that is gone": {marked(v1alpha1.AnnotationExcludedBy, "gone"), "gone hosts", "gone machines"},
	} {
		for replacements, want := range map[bool]string{false: tc.hosts, true: tc.replacements} {
			var names []string
			for _, r := range RolloutsOfNode(c, GroupVersionKind, "", func(r *unstructured.Unstructured) bool { return Replaces(r) == replacements })(t.Context(), tc.node) {
				names = append(names, r.Name)
			}
			slices.Sort(names)
			if got := strings.Join(names, " "); got != want {
				t.Errorf("%s, replacements %t: %s, want %s", what, replacements, got, want)
			}
		}
	}
}

// A new rollout comes after the changes of those that are known.
func TestCreated(t *testing.T) {
	w := &fleet.Waiters{}
	q := priorityqueue.New[reconcile.Request](t.Name())
	defer q.ShutDown()
	o := Object()
	o.SetName("new")
	e := event.CreateEvent{Object: o}
	if RolloutChanged.Create(e) {
		t.Error("it is enqueued as a change")
	}
	Created(w).Create(t.Context(), e, q)
	q.Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: "changed"}})
	for _, want := range []string{"changed", "new"} {
		if got, _ := q.Get(); got.Name != want {
			t.Errorf("got %q, want %q", got.Name, want)
		}
	}
}

func TestRolloutChanged(t *testing.T) {
	made := func(change func(*unstructured.Unstructured)) *unstructured.Unstructured {
		o := Object()
		o.SetName("os")
		o.SetGeneration(1)
		o.SetResourceVersion("2")
		change(o)
		return o
	}
	now := metav1.Now()
	for name, tc := range map[string]struct {
		change func(*unstructured.Unstructured)
		want   bool
	}{
		"resync": {func(o *unstructured.Unstructured) { o.SetResourceVersion("1") }, true},
		"resync of an invalid one": {func(o *unstructured.Unstructured) {
			o.SetResourceVersion("1")
			stall(o, status.ReasonInvalid, 1)
		}, false},
		"resync of an invalid replacement": {func(o *unstructured.Unstructured) {
			o.SetResourceVersion("1")
			o.Object["spec"] = map[string]any{"replacement": map[string]any{}}
			stall(o, status.ReasonInvalid, 1)
		}, true},
		"status": {func(o *unstructured.Unstructured) { o.Object["status"] = map[string]any{"revision": "1"} }, false},
		"approval": {func(o *unstructured.Unstructured) {
			o.Object["status"] = map[string]any{"approval": map[string]any{"of": "canary@1", "by": "jane"}}
		}, true},
		"spec":       {func(o *unstructured.Unstructured) { o.SetGeneration(2) }, true},
		"annotation": {func(o *unstructured.Unstructured) { o.SetAnnotations(map[string]string{v1alpha1.AnnotationRetry: "1"}) }, true},
		"deletion":   {func(o *unstructured.Unstructured) { o.SetDeletionTimestamp(&now) }, true},
		"another":    {func(o *unstructured.Unstructured) { o.SetUID("2") }, true},
	} {
		e := event.UpdateEvent{ObjectOld: made(func(o *unstructured.Unstructured) { o.SetResourceVersion("1") }), ObjectNew: made(tc.change)}
		if got := RolloutChanged.Update(e); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// stall sets the condition Stalled of a rollout.
func stall(o *unstructured.Unstructured, reason string, generation int64) {
	o.Object["status"] = map[string]any{"conditions": []any{
		map[string]any{"type": "Ready", "status": "False", "reason": reason, "observedGeneration": generation},
		map[string]any{"type": "Stalled", "status": "True", "reason": reason, "observedGeneration": generation},
	}}
}

// A node wakes no rollout whose spec is invalid, unless something of the rollout is on the node.
func TestRolloutsOfNodeThatAreInvalid(t *testing.T) {
	for generation, want := range map[int64]int{2: 1, 3: 0} {
		o := Object()
		o.SetName("invalid")
		o.SetGeneration(3)
		o.Object["spec"] = map[string]any{"nodeSelector": map[string]any{}}
		stall(o, status.ReasonInvalid, generation)
		ofNode := RolloutsOfNode(stored{o}, GroupVersionKind, "", func(*unstructured.Unstructured) bool { return true })
		if got := ofNode(t.Context(), newNode()); len(got) != want {
			t.Errorf("generation %d: %v", generation, got)
		}
		if got := ofNode(t.Context(), newNode(holding(v1alpha1.Claim{Rollout: "NodeRollout/invalid", UID: "x"}))); len(got) != 1 {
			t.Errorf("generation %d, with a claim: %v", generation, got)
		}
	}
}

// stored is a cache with one rollout.
type stored struct{ rollout *unstructured.Unstructured }

func (s stored) Get(_ context.Context, _ client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	s.rollout.DeepCopyInto(o.(*unstructured.Unstructured))
	return nil
}

func (s stored) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	list.(*unstructured.UnstructuredList).Items = []unstructured.Unstructured{*s.rollout}
	return nil
}

func newNode(change ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	for _, how := range change {
		how(n)
	}
	return n
}

func labelled(key, value string) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Labels = map[string]string{key: value} }
}

func annotated(key, value string) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Annotations = map[string]string{key: value} }
}

func cordonedBy(holder string) func(*corev1.Node) {
	return annotated(v1alpha1.AnnotationCordonedBy, holder)
}

func tainted(key string, effect corev1.TaintEffect) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Effect: effect}) }
}

func holding(claims ...v1alpha1.Claim) func(*corev1.Node) {
	return func(n *corev1.Node) {
		text, err := v1alpha1.FormatClaims(claims)
		if err != nil {
			panic(err)
		}
		annotated(v1alpha1.AnnotationClaims, text)(n)
	}
}
