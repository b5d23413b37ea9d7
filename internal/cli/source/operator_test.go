// SPDX-License-Identifier: Apache-2.0

package source

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
)

// TestReadOperatorNode finds the pod that works among those of the operator, and takes no Job's for one.
func TestReadOperatorNode(t *testing.T) {
	pod := func(name, node string, labels ...string) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "system-upgrade", Name: name, Labels: map[string]string{upgradev1.LabelController: "moult"}}}
		for _, label := range labels {
			p.Labels[label] = "x"
		}
		p.Spec.NodeName = node
		return p
	}
	apart := pod("two", "b")
	apart.Namespace = "moult-system"
	over := pod("over", "c")
	over.Status.Phase = corev1.PodFailed
	job, foreign := pod("job", "d", upgradev1.LabelPlan), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	for name, tc := range map[string]struct {
		pods       []runtime.Object
		holder     string
		denied     bool
		node, note string
	}{
		"none":                            {pods: []runtime.Object{job, foreign}},
		"one":                             {pods: []runtime.Object{pod("one", "a"), over, job, foreign, pod("pending", "")}, node: "a"},
		"the second of two":               {pods: []runtime.Object{pod("one", "a"), pod("two", "b")}, holder: "two", node: "b"},
		"the Lease is with the Plans":     {pods: []runtime.Object{pod("one", "a"), apart}, holder: "two", node: "b"},
		"two, and the Lease is another's": {pods: []runtime.Object{pod("one", "a"), pod("two", "b")}, holder: "three", note: NoOperator},
		"two, and there is no Lease":      {pods: []runtime.Object{pod("one", "a"), pod("two", "b")}, note: NoOperator},
		"pods may not be seen":            {pods: []runtime.Object{pod("one", "a")}, denied: true, note: NoOperator},
	} {
		t.Run(name, func(t *testing.T) {
			var objects []runtime.Object
			if tc.holder != "" {
				objects = append(objects, &unstructured.Unstructured{Object: map[string]any{
					"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": map[string]any{"namespace": "system-upgrade", "name": "moult"},
					"spec": map[string]any{"holderIdentity": tc.holder},
				}})
			}
			core := fake.NewClientset(tc.pods...)
			if tc.denied {
				core.PrependReactor("list", "pods", func(ktesting.Action) (bool, runtime.Object, error) {
					return true, nil, apierrors.NewForbidden(corev1.Resource("pods"), "", errors.New("no"))
				})
			}
			src := &Source{Client: dynamicfake.NewSimpleDynamicClient(runtime.NewScheme(), objects...), Core: core.CoreV1()}
			if node, note := src.ReadOperatorNode(t.Context()), strings.Join(src.Notes, ""); node != tc.node || note != tc.note {
				t.Errorf("got %q, %q; want %q, %q", node, note, tc.node, tc.note)
			}
		})
	}
}
