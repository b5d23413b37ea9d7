// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"moult.dev/moult/api/v1alpha1"
)

// The message does not depend on what a kubelet wrote into the annotation. So other nonsense there changes no status.
func TestUnreadableAnnotationsAreNotQuoted(t *testing.T) {
	const claimed, claims, evicted = `[{"rollout":"Plan/a/b","uid":"u"}]`, "annotation moult.dev/claims can't be read", "annotation moult.dev/evicted can't be read"
	for _, tc := range []struct{ claims, evicted, want string }{
		{"", "", ""},
		{"{", "", claims},
		{"nonsense", "nonsense", claims},
		{`[{"rollout":""}]`, "", claims},
		{"", "nonsense", evicted},
		{"[]", `["a"]`, evicted},
		{claimed, "nonsense", ""}, // A turn that has begun goes on.
	} {
		n := NewNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.AnnotationClaims: tc.claims, v1alpha1.AnnotationEvicted: tc.evicted}}})
		if n.ClaimError != tc.want {
			t.Errorf("%+v: got %q", tc, n.ClaimError)
		}
	}
}

// A Node that is being removed is unavailable, although nothing cordoned it.
func TestNodesBeingRemoved(t *testing.T) {
	for what, change := range map[string]func(*corev1.Node){
		"":              func(*corev1.Node) {},
		"being deleted": func(n *corev1.Node) { n.DeletionTimestamp = &metav1.Time{} },
		"being removed (taint karpenter.sh/disrupted)": func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "karpenter.sh/disrupted"}} },
	} {
		n := &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}
		change(n)
		if h, _ := new(Budget).unavailable(NewNode(n), time.Time{}); h.Message != what || (h.Cause == v1alpha1.CauseBeingRemoved) != (what != "") {
			t.Errorf("%q: %+v", what, h)
		}
	}
}
