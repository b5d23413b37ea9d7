// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
)

var pods = schema.GroupResource{Resource: "pods"}

// heldBy is what the API server answers when a budget holds a pod.
func heldBy(budget string) error {
	err := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{
		Type:    policyv1.DisruptionBudgetCause,
		Message: fmt.Sprintf("The disruption budget %s needs 2 healthy pods and has 2 currently", budget),
	})
	return err
}

func namespaceEnds() error {
	err := apierrors.NewForbidden(pods, "a", errors.New("its namespace is being terminated"))
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	return err
}

func TestAnswer(t *testing.T) {
	twoBudgets := apierrors.FromObject(&metav1.Status{
		Status: metav1.StatusFailure, Code: 500,
		Message: "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
	})
	type answered struct {
		State     State
		Line      string
		Budget    string
		Transient bool
	}
	for name, tc := range map[string]struct {
		err  error
		want answered
	}{
		"granted":   {nil, answered{State: Evicted, Line: "pod web/a is still terminating"}},
		"not found": {apierrors.NewNotFound(pods, "a"), answered{State: Gone, Line: "pod web/a is gone"}},
		"a namesake has its place": {
			apierrors.NewConflict(pods, "a", errors.New("Precondition failed: UID in precondition: 1, UID in object meta: 2")),
			answered{State: Gone, Line: "pod web/a is gone"},
		},
		"a namesake has its place, found earlier": {
			apierrors.NewConflict(pods, "a", errors.New("the UID in the precondition (1) does not match the UID in record (2)")),
			answered{State: Gone, Line: "pod web/a is gone"},
		},
		"conflict": {
			apierrors.NewConflict(pods, "a", errors.New("try again")),
			answered{Failed, `pod web/a can't be evicted: Operation cannot be fulfilled on pods "a": try again`, "", true},
		},
		"budget": {
			heldBy("api"),
			answered{Blocked, "pod web/a is held by PodDisruptionBudget web/api: Cannot evict pod as it would violate the pod's " +
				"disruption budget. The disruption budget api needs 2 healthy pods and has 2 currently", "web/api", true},
		},
		"budget that the server forbids": {
			apierrors.NewForbidden(schema.GroupResource{Group: "policy", Resource: "poddisruptionbudget"}, "api", errors.New("allowed is negative")),
			answered{Blocked, `pod web/a is held by PodDisruptionBudget web/api: poddisruptionbudget.policy "api" is forbidden: allowed is negative`, "web/api", false},
		},
		"webhook": {
			apierrors.NewTooManyRequests("the virtual machine moves first", 0),
			answered{Blocked, "pod web/a is held: the virtual machine moves first", "", true},
		},
		"namespace ends": {
			namespaceEnds(), answered{State: Terminating, Line: "pod web/a is still terminating: its namespace is being deleted"},
		},
		"two budgets": {
			twoBudgets,
			answered{Failed, "pod web/a can't be evicted: This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.", "", false},
		},
		"forbidden": {
			apierrors.NewForbidden(pods, "a", errors.New("no")),
			answered{Failed, `pod web/a can't be evicted: pods "a" is forbidden: no`, "", false},
		},
		"internal error": {
			apierrors.NewInternalError(errors.New("webhook down")),
			answered{Failed, "pod web/a can't be evicted: Internal error occurred: webhook down", "", true},
		},
		"no answer":   {errors.New("connection refused"), answered{Failed, "pod web/a can't be evicted: connection refused", "", true}},
		"interrupted": {context.Canceled, answered{Failed, "pod web/a can't be evicted: context canceled", "", false}},
	} {
		t.Run(name, func(t *testing.T) {
			p := pod("a")
			o := outcomeOfAnswer(&Verdict{Pod: &p}, tc.err)
			got := answered{o.State, o.String(), o.Budget, o.Err != nil && IsTransient(o.Err)}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

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
