// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"moult.dev/moult/api/v1alpha1"
)

// The message does not depend on what a kubelet wrote into the annotation. So other nonsense there changes no status.
func TestUnreadableClaimsAreNotQuoted(t *testing.T) {
	for _, value := range []string{"{", "nonsense", `[{"rollout":""}]`} {
		n := NewNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.AnnotationClaims: value}}})
		if want := "annotation moult.dev/claims can't be read"; n.ClaimError != want {
			t.Errorf("%s: got %q, want %q", value, n.ClaimError, want)
		}
	}
}
