// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
)

// A change of a Node wakes the ExtendedDaemonSets whose template selects it before or after, and those that replace a DaemonSet.
func TestOfNode(t *testing.T) {
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
	add("replaces", map[string]string{"pool": "c"}, map[string]string{edsv1.AnnotationOldDaemonset: "old"})
	scheme := runtime.NewScheme()
	if err := edsv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c := &Controller{client: fake.NewClientBuilder().WithScheme(scheme).WithLists(&list).
		WithIndex(&edsv1.ExtendedDaemonSet{}, indexSelected, indexedBySelected).Build()}
	node := func(pool string) client.Object {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"pool": pool}}}
	}
	var got []string
	for _, r := range c.ofNode(t.Context(), node("a"), node("b")) {
		got = append(got, r.Name)
	}
	slices.Sort(got)
	if want := []string{"after", "all", "before", "replaces"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
