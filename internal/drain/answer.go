// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
)

// outcomeOfAnswer returns the outcome of a pod after the API's answer to its eviction.
func outcomeOfAnswer(v *Verdict, err error) Outcome {
	o := outcomeOf(v, Evicted, "")
	switch {
	case err == nil:
	case apierrors.IsNotFound(err), apierrors.IsConflict(err) && strings.Contains(err.Error(), "UID in "):
		// The pod of this name has another uid now. The API server has two texts for it, "UID in precondition" and "the UID in the precondition".
		o.State = Gone
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		// The deletion of the namespace deletes the pod. Evictions are forbidden until then.
		o.State, o.Message = Terminating, "its namespace is being deleted"
	case blocked(err):
		cause, _ := apierrors.StatusCause(err, policyv1.DisruptionBudgetCause) // Its message has the number of healthy pods.
		o.State, o.Err = Blocked, err
		o.Budget, o.Message = blockingBudget(v.Pod.Namespace, err, cause.Message), strings.TrimSpace(err.Error()+" "+cause.Message)
	default:
		o.State, o.Err, o.Message = Failed, err, err.Error()
	}
	return o
}

// blocked reports whether the eviction was refused for now. The API server does so for a budget. Webhooks do so without
// one, for example until a virtual machine has moved.
func blocked(err error) bool {
	return apierrors.IsTooManyRequests(err) || apierrors.IsForbidden(err) && detailsOf(err).Kind == "poddisruptionbudget"
}

// blockingBudget returns the name of the budget in the API's answer, which has no field for it.
func blockingBudget(namespace string, err error, cause string) string {
	if d := detailsOf(err); d.Kind == "poddisruptionbudget" {
		return namespace + "/" + d.Name
	}
	rest, ok := strings.CutPrefix(cause, "The disruption budget ")
	if !ok {
		return ""
	}
	name, _, _ := strings.Cut(rest, " ")
	return namespace + "/" + name
}

func detailsOf(err error) metav1.StatusDetails {
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Details != nil {
		return *status.Status().Details
	}
	return metav1.StatusDetails{}
}

// IsTransient reports whether a refused request may succeed later without an action of a person.
func IsTransient(err error) bool {
	if errors.Is(err, context.Canceled) {
		return false
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return true // The API server did not answer.
	}
	if strings.Contains(err.Error(), "more than one PodDisruptionBudget") {
		return false // The API server returns an internal error, but only a person can fix it.
	}
	code := status.Status().Code
	return code == http.StatusConflict || code == http.StatusTooManyRequests || code >= http.StatusInternalServerError
}

// HeldBy returns the PodDisruptionBudget that would refuse the eviction of a pod now, and why, by the API server's rules.
// It is empty if the pod may be evicted.
func HeldBy(pod *corev1.Pod, budgets []policyv1.PodDisruptionBudget) (budget, message string) {
	if pod.DeletionTimestamp != nil || pod.Status.Phase != corev1.PodRunning {
		return "", "" // The API server ignores budgets for such a pod.
	}
	var of []*policyv1.PodDisruptionBudget
	for i := range budgets {
		b := &budgets[i]
		selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
		if err == nil && b.Namespace == pod.Namespace && selector.Matches(labels.Set(pod.Labels)) {
			of = append(of, b)
		}
	}
	switch {
	case len(of) == 0:
		return "", ""
	case len(of) > 1:
		return of[0].Name + ", " + of[1].Name, "more than one PodDisruptionBudget selects it, so the API server never evicts it"
	}
	b := of[0]
	healthy, desired := b.Status.CurrentHealthy, b.Status.DesiredHealthy
	ready := slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
	allowsUnready := healthy >= desired && desired > 0 || ptr.Deref(b.Spec.UnhealthyPodEvictionPolicy, "") == policyv1.AlwaysAllow
	if b.Status.DisruptionsAllowed > 0 || !ready && allowsUnready {
		return "", ""
	}
	return b.Name, fmt.Sprintf("it allows no disruption now: %d of %d desired pods are healthy", healthy, desired)
}
