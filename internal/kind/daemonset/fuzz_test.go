// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
)

// FuzzOverrides finds node annotations that apply and can't be written into a pod. One that can't be read changes nothing.
func FuzzOverrides(f *testing.F) {
	for _, value := range []string{
		"", "null", "{}", `{"limits":{"cpu":"1"}}`, `{"requests":{"memory":"1e3999999"}}`, `{"limits":{"cpu":1.5e-9}}`, `{"claims":[{"name":"x"}]}`,
		`{"Limits":{"":"1"}}`, `{"limits":{"cpu":null}}`,
	} {
		f.Add(value)
	}
	f.Fuzz(func(t *testing.T, value string) {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Annotations: map[string]string{edsv1.AnnotationResourcesPrefix + "a.b.c": value}}}
		of := func() (Overrides, error) {
			return OverridesOf(types.NamespacedName{Namespace: "a", Name: "b"}, []corev1.Container{{Name: "c"}}, n, nil)
		}
		o, err := of()
		if err != nil && (len(o.Resources) > 0 || o.Hash != "") || err == nil && o.Hash == "" || o.NodeHash == "" {
			t.Fatalf("%+v, %v", o, err)
		}
		if _, err := json.Marshal(o.Resources); err != nil {
			t.Error(err)
		}
		if again, _ := of(); again.Hash != o.Hash || again.NodeHash != o.NodeHash {
			t.Errorf("%+v became %+v", o, again)
		}
	})
}
