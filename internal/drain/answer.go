// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"context"
	"errors"
	"net/http"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// answer is how a pod stands after the API's answer to its eviction.
func answer(v *Verdict, err error) Outcome {
	o := outcomeOf(v, Evicted, "")
	switch {
	case err == nil:
	case apierrors.IsNotFound(err) || replaced(err):
		o.State = Gone
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		// Its namespace's end will delete it, and evictions are forbidden meanwhile.
		o.State, o.Message = Terminating, "its namespace is being deleted"
	case blocked(err):
		o.State, o.Err = Blocked, err
		o.Budget, o.Message = budget(v.Pod.Namespace, err), message(err)
	default:
		o.State, o.Err, o.Message = Failed, err, err.Error()
	}
	return o
}

// replaced says that the pod of this name has another uid by now, so that ours is gone. The API server has two texts for
// it, "UID in precondition" and "the UID in the precondition", and no field.
func replaced(err error) bool {
	return apierrors.IsConflict(err) && strings.Contains(err.Error(), "UID in ")
}

// blocked says that the eviction was refused for now. The API server says so for a budget; webhooks that evict in their
// own way (a virtual machine that moves first) say so without one.
func blocked(err error) bool {
	if apierrors.IsTooManyRequests(err) {
		return true
	}
	return apierrors.IsForbidden(err) && details(err).Kind == "poddisruptionbudget"
}

// budget finds the name of the budget in the API's answer, which has no field for it.
func budget(namespace string, err error) string {
	if d := details(err); d.Kind == "poddisruptionbudget" {
		return namespace + "/" + d.Name
	}
	cause, ok := apierrors.StatusCause(err, policyv1.DisruptionBudgetCause)
	if !ok {
		return ""
	}
	rest, ok := strings.CutPrefix(cause.Message, "The disruption budget ")
	if !ok {
		return ""
	}
	name, _, _ := strings.Cut(rest, " ")
	return namespace + "/" + name
}

// message is the API's own, with the cause that counts the healthy pods.
func message(err error) string {
	if cause, ok := apierrors.StatusCause(err, policyv1.DisruptionBudgetCause); ok {
		return err.Error() + " " + cause.Message
	}
	return err.Error()
}

func details(err error) metav1.StatusDetails {
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Details != nil {
		return *status.Status().Details
	}
	return metav1.StatusDetails{}
}

// IsTransient says that what the API refused may succeed later without anybody's doing.
func IsTransient(err error) bool {
	if errors.Is(err, context.Canceled) {
		return false
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return true // The API server did not answer.
	}
	if strings.Contains(err.Error(), "more than one PodDisruptionBudget") {
		return false // The API server calls this an internal error, but only a person can mend it.
	}
	code := status.Status().Code
	return code == http.StatusConflict || code == http.StatusTooManyRequests || code >= http.StatusInternalServerError
}
