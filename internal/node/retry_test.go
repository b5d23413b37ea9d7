// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"moult.dev/moult/api/v1alpha1"
)

const plan = "Plan/system-upgrade/k3s"

// cordonable makes a node, unschedulable or not, with the mark of a rollout or without.
func cordonable(unschedulable bool, by string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Annotations: map[string]string{"kept": "yes"}}}
	n.Spec.Unschedulable = unschedulable
	if by != "" {
		n.Annotations[v1alpha1.AnnotationCordonedBy] = by
	}
	return n
}

// A kubelet that writes at the same time only makes us read again.
func TestRecordReadsAgain(t *testing.T) {
	c := fake.NewClientBuilder().WithObjects(cordonable(false, "")).Build()
	stale := read(t, c)
	kubelet := read(t, c)
	kubelet.Labels = map[string]string{"new": "label"}
	if err := c.Update(t.Context(), kubelet); err != nil {
		t.Fatal(err)
	}
	if err := RecordEvicted(t.Context(), c, stale, db); err != nil {
		t.Error(err)
	}
	n := read(t, c)
	if n.Annotations[v1alpha1.AnnotationEvicted] == "" || n.Labels["new"] != "label" {
		t.Errorf("got %+v", n)
	}
}

func TestRecordGivesUp(t *testing.T) {
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "nodes"}, "n1", errors.New("changed"))
	for name, tc := range map[string]struct {
		move    bool // Whether another writer changes the node each time.
		patches int
	}{
		"when the cache does not catch up": {false, 1},
		"when others never stop writing":   {true, attempts},
	} {
		t.Run(name, func(t *testing.T) {
			patches := 0
			c := fake.NewClientBuilder().WithObjects(cordonable(false, "")).WithInterceptorFuncs(interceptor.Funcs{
				Patch: func(ctx context.Context, c client.WithWatch, _ client.Object, _ client.Patch, _ ...client.PatchOption) error {
					patches++
					if tc.move {
						n := read(t, c)
						n.Labels = map[string]string{"turn": string(rune('0' + patches))}
						if err := c.Update(ctx, n); err != nil {
							t.Error(err)
						}
					}
					return conflict
				},
			}).Build()
			err := RecordEvicted(t.Context(), c, read(t, c), db)
			if !apierrors.IsConflict(err) || patches != tc.patches {
				t.Errorf("got %v after %d patches", err, patches)
			}
		})
	}
}

func read(t *testing.T, c client.Reader) *corev1.Node {
	t.Helper()
	n := &corev1.Node{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: "n1"}, n); err != nil {
		t.Fatal(err)
	}
	return n
}
