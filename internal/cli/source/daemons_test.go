// SPDX-License-Identifier: Apache-2.0

package source

import (
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	ktesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
)

func aPod(namespace, name, of string, owner *metav1.OwnerReference) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": "x"}}}
	if of != "" {
		p.Labels[edsv1.LabelName] = of
	}
	if owner != nil {
		p.OwnerReferences = []metav1.OwnerReference{*owner}
	}
	p.Spec.NodeName = "node"
	p.Spec.Containers = []corev1.Container{{Name: "c", Env: []corev1.EnvVar{{Name: "SECRET", Value: "x"}}}}
	return p
}

// TestReadDaemons reads the pods that are asked for, and those of a DaemonSet that is taken over from.
func TestReadDaemons(t *testing.T) {
	set := func(namespace, name string, annotations map[string]string) edsv1.ExtendedDaemonSet {
		return edsv1.ExtendedDaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: annotations}}
	}
	a, b := set("ns", "a", nil), set("other", "b", nil)
	over := set("ns", "a", map[string]string{edsv1.AnnotationOldDaemonset: "agent"})
	denied := apierrors.NewForbidden(corev1.Resource("pods"), "", errors.New("no"))
	for name, tc := range map[string]struct {
		sets  []edsv1.ExtendedDaemonSet
		skip  bool
		fails map[string]error
		// pods are those of each, and where the restrictions with which they were listed.
		pods, where []string
		note        string
		err         bool
	}{
		"all are skipped":          {sets: []edsv1.ExtendedDaemonSet{a, b}, skip: true, fails: map[string]error{"pods": denied, "extendeddaemonsetreplicasets": denied}},
		"all":                      {sets: []edsv1.ExtendedDaemonSet{a, b}, pods: []string{"ns/a-1", "other/b-1"}, where: []string{"ns a ", "other b "}},
		"with those of the old":    {sets: []edsv1.ExtendedDaemonSet{over}, pods: []string{"ns/a-1", "ns/agent-1"}, where: []string{"ns ! ", "ns a "}},
		"pods may not be seen":     {sets: []edsv1.ExtendedDaemonSet{a}, fails: map[string]error{"pods": denied}, note: NoPodsSeen, where: []string{"ns a "}},
		"settings may not be seen": {sets: []edsv1.ExtendedDaemonSet{a}, fails: map[string]error{"extendeddaemonsetsettings": denied}, note: NoPodsSeen, where: []string{"ns a "}},
		"the API server fails":     {sets: []edsv1.ExtendedDaemonSet{a}, fails: map[string]error{"pods": errors.New("broken")}, err: true, where: []string{"ns a "}},
	} {
		t.Run(name, func(t *testing.T) {
			src, dynamic, core := fakes()
			ds := &metav1.OwnerReference{Kind: "DaemonSet", Name: "agent", Controller: ptr.To(true)}
			for _, p := range []*corev1.Pod{aPod("ns", "a-1", "a", nil), aPod("other", "b-1", "b", nil), aPod("ns", "agent-1", "", ds), aPod("ns", "else", "", nil)} {
				if err := core.Tracker().Add(p); err != nil {
					t.Fatal(err)
				}
			}
			for resource, err := range tc.fails {
				fail := func(ktesting.Action) (bool, runtime.Object, error) { return true, nil, err }
				dynamic.PrependReactor("list", resource, fail)
				core.PrependReactor("list", resource, fail)
			}
			var where []string
			core.PrependReactor("list", "pods", func(action ktesting.Action) (bool, runtime.Object, error) {
				r := action.(ktesting.ListAction).GetListRestrictions()
				of, ok := r.Labels.RequiresExactMatch(edsv1.LabelName)
				if !ok && !r.Labels.Matches(labels.Set{edsv1.LabelName: "x"}) {
					of = "!"
				}
				where = append(where, action.GetNamespace()+" "+of+" "+r.Fields.String())
				return false, nil, nil
			})
			d, err := src.ReadDaemons(t.Context(), tc.sets, func(*edsv1.ExtendedDaemonSet) bool { return tc.skip })
			note := strings.Join(src.Notes, "")
			if (err != nil) != tc.err || note != tc.note || len(d.Sets) != len(tc.sets) && !tc.err {
				t.Errorf("%+v, %q, %v", d.Sets, note, err)
			}
			slices.Sort(where)
			if !slices.Equal(where, tc.where) {
				t.Errorf("listed by %q, want %q", where, tc.where)
			}
			var pods []string
			for _, of := range d.Pods {
				for _, p := range of {
					pods = append(pods, types.NamespacedName{Namespace: p.Namespace, Name: p.Name}.String())
					if strings.Contains(p.String(), "SECRET") {
						t.Error("it keeps more of a pod than is looked at")
					}
				}
			}
			if slices.Sort(pods); !tc.err && !slices.Equal(pods, tc.pods) {
				t.Errorf("pods: %q, want %q", pods, tc.pods)
			}
		})
	}
}
