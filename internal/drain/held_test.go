// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// TestHeldBy has the rules by which the API server judges evictions.
func TestHeldBy(t *testing.T) {
	cart := func(change ...func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cart-1", Labels: map[string]string{"app": "cart"}},
			Status: corev1.PodStatus{
				Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
			},
		}
		for _, f := range change {
			f(p)
		}
		return p
	}
	budget := func(name, app string, allowed int32, change ...func(*policyv1.PodDisruptionBudget)) policyv1.PodDisruptionBudget {
		b := policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
			Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}},
			Status:     policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: allowed, CurrentHealthy: 1, DesiredHealthy: 1},
		}
		for _, f := range change {
			f(&b)
		}
		return b
	}
	unready := func(p *corev1.Pod) { p.Status.Conditions = nil }
	phase := func(is corev1.PodPhase) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Status.Phase = is } }
	always := func(b *policyv1.PodDisruptionBudget) {
		b.Spec.UnhealthyPodEvictionPolicy = ptr.To(policyv1.AlwaysAllow)
	}
	lacking := func(b *policyv1.PodDisruptionBudget) { b.Status.CurrentHealthy = 0 }
	elsewhere := func(b *policyv1.PodDisruptionBudget) { b.Namespace = "other" }
	type budgets = []policyv1.PodDisruptionBudget
	for name, tc := range map[string]struct {
		pod     *corev1.Pod
		budgets budgets
		want    string
	}{
		"no budget":                            {pod: cart()},
		"one that allows":                      {cart(), budgets{budget("b", "cart", 1)}, ""},
		"one that allows none":                 {cart(), budgets{budget("b", "cart", 0)}, "b"},
		"one of others":                        {cart(), budgets{budget("b", "front", 0)}, ""},
		"one of another namespace":             {cart(), budgets{budget("b", "cart", 0, elsewhere)}, ""},
		"two, though both allow":               {cart(), budgets{budget("b", "cart", 1), budget("c", "cart", 1)}, "b, c"},
		"not ready, and enough are":            {cart(unready), budgets{budget("b", "cart", 0)}, ""},
		"not ready, and not enough are":        {cart(unready), budgets{budget("b", "cart", 0, lacking)}, "b"},
		"not ready, and that always goes":      {cart(unready), budgets{budget("b", "cart", 0, lacking, always)}, ""},
		"it has ended":                         {cart(phase(corev1.PodSucceeded)), budgets{budget("b", "cart", 0)}, ""},
		"it goes already":                      {cart(func(p *corev1.Pod) { p.DeletionTimestamp = ptr.To(metav1.Now()) }), budgets{budget("b", "cart", 0)}, ""},
		"it has not begun":                     {cart(phase(corev1.PodPending)), budgets{budget("b", "cart", 0)}, ""},
		"ready, and those that are not may go": {cart(), budgets{budget("b", "cart", 0, always)}, "b"},
	} {
		if got, message := HeldBy(tc.pod, tc.budgets); got != tc.want || (message == "") != (tc.want == "") {
			t.Errorf("%s: %q (%s), want %q", name, got, message, tc.want)
		}
	}
}
