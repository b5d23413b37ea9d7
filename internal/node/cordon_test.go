// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
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

func TestCordonAndUncordon(t *testing.T) {
	cordonBy := func(by string) func(context.Context, client.Client, *corev1.Node) (bool, error) {
		return func(ctx context.Context, c client.Client, n *corev1.Node) (bool, error) { return Cordon(ctx, c, n, by) }
	}
	for name, tc := range map[string]struct {
		do      func(context.Context, client.Client, *corev1.Node) (bool, error)
		node    *corev1.Node
		want    *corev1.Node
		changed bool
	}{
		"a rollout cordons and marks":             {cordonBy(plan), cordonable(false, ""), cordonable(true, plan), true},
		"a rollout again changes nothing":         {cordonBy(plan), cordonable(true, plan), cordonable(true, plan), false},
		"a person's cordon stays theirs":          {cordonBy(plan), cordonable(true, ""), cordonable(true, ""), false},
		"another rollout's cordon stays theirs":   {cordonBy(plan), cordonable(true, "Plan/a/b"), cordonable(true, "Plan/a/b"), false},
		"a mark that is left over is replaced":    {cordonBy(plan), cordonable(false, "Plan/a/b"), cordonable(true, plan), true},
		"a person cordons without a mark":         {cordonBy(""), cordonable(false, ""), cordonable(true, ""), true},
		"a person's cordon takes an old mark off": {cordonBy(""), cordonable(false, plan), cordonable(true, ""), true},
		"a person leaves a rollout's cordon":      {cordonBy(""), cordonable(true, plan), cordonable(true, plan), false},
		"uncordon a person's":                     {Uncordon, cordonable(true, ""), cordonable(false, ""), true},
		"uncordon a rollout's":                    {Uncordon, cordonable(true, plan), cordonable(false, ""), true},
		"uncordon what is schedulable":            {Uncordon, cordonable(false, ""), cordonable(false, ""), false},
		"uncordon takes a mark that is left over": {Uncordon, cordonable(false, plan), cordonable(false, ""), true},
	} {
		t.Run(name, func(t *testing.T) {
			patches := 0
			c := fake.NewClientBuilder().WithObjects(tc.node).WithInterceptorFuncs(interceptor.Funcs{
				Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
					patches++
					body, err := patch.Data(obj)
					if err != nil {
						return err
					}
					var sent struct {
						Metadata struct{ ResourceVersion string }
					}
					if err := json.Unmarshal(body, &sent); err != nil || sent.Metadata.ResourceVersion == "" {
						t.Errorf("a patch without a precondition: %s", body)
					}
					return c.Patch(ctx, obj, patch, opts...)
				},
			}).Build()
			given := read(t, c)
			before := given.DeepCopy()

			changed, err := tc.do(t.Context(), c, given)
			if err != nil {
				t.Fatal(err)
			}
			if changed != tc.changed || (patches == 1) != tc.changed {
				t.Errorf("changed is %v after %d patches", changed, patches)
			}
			if diff := cmp.Diff(before, given); diff != "" {
				t.Errorf("changed the object that it was given:\n%s", diff)
			}
			got := read(t, c)
			got.ResourceVersion = ""
			tc.want.ResourceVersion = ""
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A person who cordons the node between our read and our write keeps it.
func TestCordonLosesToAPerson(t *testing.T) {
	c := fake.NewClientBuilder().WithObjects(cordonable(false, "")).Build()
	stale := read(t, c)
	person := read(t, c)
	person.Spec.Unschedulable = true
	if err := c.Update(t.Context(), person); err != nil {
		t.Fatal(err)
	}
	changed, err := Cordon(t.Context(), c, stale, plan)
	if changed || err != nil {
		t.Errorf("got %v, %v", changed, err)
	}
	if by, ok := read(t, c).Annotations[v1alpha1.AnnotationCordonedBy]; ok {
		t.Errorf("marked as %s", by)
	}
}

// A kubelet that writes at the same time only makes us read again.
func TestCordonReadsAgain(t *testing.T) {
	c := fake.NewClientBuilder().WithObjects(cordonable(false, "")).Build()
	stale := read(t, c)
	kubelet := read(t, c)
	kubelet.Labels = map[string]string{"new": "label"}
	if err := c.Update(t.Context(), kubelet); err != nil {
		t.Fatal(err)
	}
	if changed, err := Cordon(t.Context(), c, stale, plan); !changed || err != nil {
		t.Errorf("got %v, %v", changed, err)
	}
	n := read(t, c)
	if !n.Spec.Unschedulable || n.Annotations[v1alpha1.AnnotationCordonedBy] != plan || n.Labels["new"] != "label" {
		t.Errorf("got %+v", n)
	}
}

func TestCordonGivesUp(t *testing.T) {
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
			changed, err := Cordon(t.Context(), c, read(t, c), plan)
			if changed || !apierrors.IsConflict(err) || patches != tc.patches {
				t.Errorf("got %v, %v after %d patches", changed, err, patches)
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
