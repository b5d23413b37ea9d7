// SPDX-License-Identifier: Apache-2.0

package node

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"moult.dev/moult/api/v1alpha1"
)

// FuzzParseEvicted finds records that can't be added to: the result is readable, sorted, bounded, and has what was added.
func FuzzParseEvicted(f *testing.F) {
	for _, value := range []string{"", "{", "null", "[]", `[""]`, `["ReplicaSet/shop/cart"]`, `["z/z/z","a/b/c","a/b/c"]`, `["a/b/\ud800"]`, `[1]`} {
		f.Add(value)
	}
	f.Add(`["` + strings.Repeat(`a/b/c","`, v1alpha1.MaxEvicted+1) + `a/b/c"]`)
	f.Fuzz(func(t *testing.T, value string) {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.AnnotationEvicted: value}}}
		before, err := v1alpha1.ParseEvicted(n.Annotations)
		if err != nil && before != nil || len(before) > v1alpha1.MaxEvicted {
			t.Fatalf("%d workloads, %v", len(before), err)
		}
		added := v1alpha1.Workload{Kind: "A", Namespace: "a", Name: "a"}
		Evicting(added)(n, "")
		after, err := v1alpha1.ParseEvicted(n.Annotations)
		if err != nil {
			t.Fatal(err)
		}
		if len(after) > v1alpha1.MaxEvicted || len(after) < v1alpha1.MaxEvicted && !slices.Contains(after, added) {
			t.Errorf("%d workloads, with the added one: %t", len(after), slices.Contains(after, added))
		}
		if !slices.IsSortedFunc(after, func(a, b v1alpha1.Workload) int { return strings.Compare(a.String(), b.String()) }) {
			t.Errorf("%v is not sorted", after)
		}
	})
}
