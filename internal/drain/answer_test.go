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
