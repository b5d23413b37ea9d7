// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
)

// listing returns a controller for five ExtendedDaemonSets, of which one replaces a DaemonSet.
func listing(t *testing.T) *Controller {
	t.Helper()
	list := edsv1.ExtendedDaemonSetList{}
	add := func(name string, selector, annotations map[string]string) {
		eds := edsv1.ExtendedDaemonSet{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations}}
		eds.Spec.Template.Spec.NodeSelector = selector
		list.Items = append(list.Items, eds)
	}
	add("all", nil, nil)
	add("before", map[string]string{"pool": "a"}, nil)
	add("after", map[string]string{"pool": "b"}, nil)
	add("elsewhere", map[string]string{"pool": "c"}, nil)
	add("failed", map[string]string{"pool": "c"}, nil)
	list.Items[len(list.Items)-1].Status.Conditions = []edsv1.Condition{{Type: edsv1.ConditionCanaryFailed, Status: metav1.ConditionTrue}}
	add("replaces", map[string]string{"pool": "c"}, map[string]string{edsv1.AnnotationOldDaemonset: "old"})
	scheme := runtime.NewScheme()
	if err := edsv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	return &Controller{client: fake.NewClientBuilder().WithScheme(scheme).WithLists(&list).
		WithIndex(&edsv1.ExtendedDaemonSet{}, indexSelected, indexedBySelected).Build()}
}

func names(requests []reconcile.Request) (all []string) {
	for _, r := range requests {
		all = append(all, r.Name)
	}
	slices.Sort(all)
	return all
}

// A change of a Node wakes the ExtendedDaemonSets whose template selects it before or after, and those that replace a DaemonSet.
func TestOfNode(t *testing.T) {
	node := func(pool string) client.Object {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"pool": pool}}}
	}
	got := names(listing(t).ofNode(t.Context(), node("a"), node("b")))
	if want := []string{"after", "all", "before", "failed", "replaces"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A change of a DaemonSet or of its pods wakes the ExtendedDaemonSet that replaces it, and no pod of another kind wakes one.
func TestOfReplaced(t *testing.T) {
	pod := func(kind, owner string) client.Object {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{Kind: kind, Name: owner, Controller: ptr.To(true)}}},
			Spec:       corev1.PodSpec{NodeName: "n"},
		}
	}
	labelled := pod("DaemonSet", "old")
	labelled.SetLabels(map[string]string{edsv1.LabelName: "replaces"})
	for name, tc := range map[string]struct {
		object client.Object
		want   []string
	}{
		"DaemonSet":                     {&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "old"}}, []string{"replaces"}},
		"another DaemonSet":             {&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "new"}}, nil},
		"its pod":                       {pod("DaemonSet", "old"), []string{"replaces"}},
		"a Job's pod":                   {pod("Job", "old"), nil},
		"a pod of an ExtendedDaemonSet": {labelled, nil},
	} {
		if got := names(listing(t).ofReplaced(t.Context(), tc.object)); !slices.Equal(got, tc.want) {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
}
