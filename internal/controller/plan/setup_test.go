// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	clientfake "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/turn"
)

var managed = []metav1.ManagedFieldsEntry{{Manager: "kubelet"}}

func TestTrim(t *testing.T) {
	owner := []metav1.OwnerReference{{UID: "u"}}
	for name, tc := range map[string]struct {
		trim      func(any) (any, error)
		big, want client.Object
	}{
		"a Job": {
			trimJob,
			&batchv1.Job{
				ObjectMeta: metav1.ObjectMeta{Name: "j", ManagedFields: managed, OwnerReferences: owner, Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"c": "d"}},
				Spec:       batchv1.JobSpec{Parallelism: ptr.To[int32](1), Completions: ptr.To[int32](1), Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{HostPID: true}}},
				Status: batchv1.JobStatus{
					Active: 1, Failed: 2, Succeeded: 3, Ready: ptr.To[int32](1), Conditions: []batchv1.JobCondition{{Type: batchv1.JobComplete}},
				},
			},
			&batchv1.Job{
				ObjectMeta: metav1.ObjectMeta{Name: "j", OwnerReferences: owner, Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"c": "d"}},
				Spec:       batchv1.JobSpec{Parallelism: ptr.To[int32](1)},
				Status:     batchv1.JobStatus{Active: 1, Failed: 2, Conditions: []batchv1.JobCondition{{Type: batchv1.JobComplete}}},
			},
		},
		"a pod": {
			trimPod,
			&corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: "p", ManagedFields: managed, OwnerReferences: owner, Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"c": "d"}},
				Spec:       corev1.PodSpec{NodeName: "n"},
				Status: corev1.PodStatus{
					Phase: corev1.PodRunning, HostIP: "10.0.0.1", Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled}},
					InitContainerStatuses: []corev1.ContainerStatus{{Name: "a"}}, ContainerStatuses: []corev1.ContainerStatus{{Name: "b"}},
				},
			},
			&corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: "p", OwnerReferences: owner, Labels: map[string]string{"a": "b"}},
				Status: corev1.PodStatus{
					Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled}},
					InitContainerStatuses: []corev1.ContainerStatus{{Name: "a"}}, ContainerStatuses: []corev1.ContainerStatus{{Name: "b"}},
				},
			},
		},
		"a secret": {
			hashOnly,
			&corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Name: "s1", ManagedFields: managed, Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"c": "d"}},
				Type:       corev1.SecretTypeOpaque, Data: map[string][]byte{"a": []byte("1"), "b": []byte("2")},
			},
			&corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Name: "s1", Annotations: map[string]string{annotationSecretHash: "24cc5gtmk8"}}, Type: corev1.SecretTypeOpaque,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			// A transform may be asked once more about what it has made.
			for range 2 {
				got, err := tc.trim(tc.big)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(any(tc.want), got); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			}
			// What is no object of the kind, such as a tombstone, goes through.
			if got, err := tc.trim("tombstone"); got != any("tombstone") || err != nil {
				t.Errorf("got %v, %v", got, err)
			}
		})
	}
}

// Somebody who puts the annotation on a Secret does not choose its hash.
func TestHashOnlyIsNotForged(t *testing.T) {
	s := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "s1", Annotations: map[string]string{annotationSecretHash: "forged"}},
		Type:       corev1.SecretTypeOpaque, Data: map[string][]byte{"a": []byte("1"), "b": []byte("2")},
	}
	if _, err := hashOnly(s); err != nil || s.Annotations[annotationSecretHash] != "24cc5gtmk8" {
		t.Errorf("got %v, %v", s.Annotations, err)
	}
}

func TestPredicates(t *testing.T) {
	type change func(old, now client.Object)
	plans := map[string]struct {
		change change
		want   bool
	}{
		"nothing":       {func(_, _ client.Object) {}, false},
		"a status":      {func(_, now client.Object) { now.SetResourceVersion("9") }, false},
		"the spec":      {func(_, now client.Object) { now.SetGeneration(4) }, true},
		"another":       {func(_, now client.Object) { now.SetUID("another") }, true},
		"a label":       {func(_, now client.Object) { now.SetLabels(map[string]string{"a": "b"}) }, true},
		"an annotation": {func(_, now client.Object) { now.SetAnnotations(map[string]string{"a": "b"}) }, true},
		"it is deleted": {func(_, now client.Object) { now.SetDeletionTimestamp(ptr.To(ago(0))) }, true},
		"it was deleted": {func(old, now client.Object) {
			old.SetDeletionTimestamp(ptr.To(ago(0)))
			now.SetDeletionTimestamp(ptr.To(ago(0)))
		}, false},
		"a label changes": {func(old, now client.Object) {
			old.SetLabels(map[string]string{"a": "b"})
			now.SetLabels(map[string]string{"a": "c"})
		}, true},
	}
	for name, tc := range plans {
		old, now := newPlan(), newPlan()
		tc.change(old, now)
		if got := turn.RolloutChanged.Update(event.UpdateEvent{ObjectOld: old, ObjectNew: now}); got != tc.want {
			t.Errorf("a Plan, %s: %v", name, got)
		}
	}
	for name, tc := range map[string]struct {
		change func(*corev1.Node)
		want   bool
	}{
		"nothing":           {func(*corev1.Node) {}, false},
		"a heartbeat":       {func(n *corev1.Node) { n.ResourceVersion = "9" }, false},
		"it is cordoned":    {unschedulable, true},
		"a label":           {labelled(hash), true},
		"a label taken off": {without(corev1.LabelHostname), true},
		"a claim":           {holding(claimed()), true},
		"a retry":           {annotated(v1alpha1.AnnotationRetry, "1"), true},
	} {
		if got := turn.NodeChanged.Update(event.UpdateEvent{ObjectOld: newNode("a"), ObjectNew: newNode("a", tc.change)}); got != tc.want {
			t.Errorf("a node, %s: %v", name, got)
		}
	}
	if !turn.NodeChanged.Create(event.CreateEvent{Object: newNode("a")}) || !turn.NodeChanged.Delete(event.DeleteEvent{Object: newNode("a")}) {
		t.Error("nodes that come and go are left out")
	}
}

// raw makes a Plan as the cache holds it, with this spec.
func raw(t *testing.T, name string, change func(*upgradev1.Plan)) unstructured.Unstructured {
	t.Helper()
	p := newPlan(change)
	p.Name = name
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(p)
	if err != nil {
		t.Fatal(err)
	}
	return unstructured.Unstructured{Object: content}
}

// names of what is enqueued.
func enqueued(all []reconcile.Request) string {
	var names []string
	for _, r := range all {
		if r.Namespace != namespace {
			names = append(names, r.Namespace+"/"+r.Name)
			continue
		}
		names = append(names, r.Name)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

func TestPlansOf(t *testing.T) {
	selecting := func(key, value string) func(*upgradev1.Plan) {
		return func(p *upgradev1.Plan) {
			p.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
		}
	}
	malformed := raw(t, "malformed", func(*upgradev1.Plan) {})
	malformed.Object["spec"] = map[string]any{"nodeSelector": "all of them", "secrets": []any{"s1", map[string]any{"name": int64(3)}}}
	plans := []unstructured.Unstructured{
		raw(t, "all", func(*upgradev1.Plan) {}),
		raw(t, "none", func(p *upgradev1.Plan) { p.Spec.NodeSelector = nil }),
		malformed,
		raw(t, "bad-selector", func(p *upgradev1.Plan) { p.Spec.NodeSelector = selects("Like", "x") }),
		raw(t, "servers", selecting("role", "server")),
		raw(t, "agents", func(p *upgradev1.Plan) {
			selecting("role", "agent")(p)
			secrets(upgradev1.SecretSpec{Name: "s1"}, upgradev1.SecretSpec{Name: "s2", IgnoreUpdates: true})(p)
		}),
	}
	c := &Controller{options: *testOptions(), Engine: &turn.Engine{Client: clientfake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		List: func(_ context.Context, _ client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			var o client.ListOptions
			o.ApplyOptions(opts)
			if o.Namespace != namespace {
				t.Errorf("lists namespace %q", o.Namespace)
			}
			list.(*unstructured.UnstructuredList).Items = plans
			return nil
		},
	}).Build()}}

	role := func(role string) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Labels["role"] = role }
	}
	held := func(rollout string) func(*corev1.Node) {
		return holding(v1alpha1.Claim{Rollout: rollout, UID: "u", Turn: "t", Since: ago(0)})
	}
	for name, tc := range map[string]struct {
		nodes []client.Object
		want  string
	}{
		"a node":                      {[]client.Object{newNode("a")}, "all"},
		"a server":                    {[]client.Object{newNode("a", role("server"))}, "all servers"},
		"a server that was an agent":  {[]client.Object{newNode("a", role("agent")), newNode("a", role("server"))}, "agents all servers"},
		"a node with a claim":         {[]client.Object{newNode("a", held("Plan/"+namespace+"/gone"))}, "all gone"},
		"a node that had a claim":     {[]client.Object{newNode("a", held("Plan/"+namespace+"/gone")), newNode("a")}, "all gone"},
		"a node with another's claim": {[]client.Object{newNode("a", held("Plan/elsewhere/x"))}, "all"},
		"a node with a taint": {[]client.Object{newNode("a", func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: "plan.outdated.moult.dev/gone", Effect: corev1.TaintEffectPreferNoSchedule}}
		})}, "all gone"},
		"a node with another kind's":    {[]client.Object{newNode("a", held("NodeRollout/x"))}, "all"},
		"a node with what is no claims": {[]client.Object{newNode("a", annotated(v1alpha1.AnnotationClaims, "{"))}, "all"},
	} {
		if got := enqueued(turn.RolloutsOfNode(c.Client, groupVersionKind, namespace, isPlan)(t.Context(), tc.nodes...)); got != tc.want {
			t.Errorf("%s wakes %s, want %s", name, got, tc.want)
		}
	}
	for secret, want := range map[string]string{"s1": "agents", "s2": "agents", "s3": ""} {
		if got := enqueued(c.plansOfSecret(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: secret}})); got != want {
			t.Errorf("secret %s wakes %s, want %s", secret, got, want)
		}
	}
	for want, object := range map[string]client.Object{
		name: newTurnJob(newPlan(), newNode("a")),
		"":   &batchv1.Job{},
	} {
		if got := enqueued(planOfLabel(t.Context(), object)); got != want {
			t.Errorf("a Job wakes %q, want %q", got, want)
		}
	}
}
