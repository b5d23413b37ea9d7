// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"moult.dev/moult/api/v1alpha1"
)

func TestSpecChanged(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*v1alpha1.NodeDisruptionBudget)
		want   bool
	}{
		"a status": {func(b *v1alpha1.NodeDisruptionBudget) { b.ResourceVersion, b.Status.Matched = "2", 3 }, false},
		"the spec": {func(b *v1alpha1.NodeDisruptionBudget) { b.Generation = 2 }, true},
		"another":  {func(b *v1alpha1.NodeDisruptionBudget) { b.UID = "another" }, true},
	} {
		old := &v1alpha1.NodeDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "b", UID: "one", ResourceVersion: "1", Generation: 1}}
		now := old.DeepCopy()
		tc.change(now)
		if got := SpecChanged(old, now); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
