// SPDX-License-Identifier: Apache-2.0

package hostupdate

import (
	"context"
	"slices"
	"sync"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"moult.dev/moult/internal/metrics"
)

// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingadmissionpolicies;validatingadmissionpolicybindings,resourceNames=moult-agent,verbs=get

const (
	// agentPolicy is the name of the policy that bounds what agents may write, and of its binding.
	agentPolicy = "moult-agent"
	// policyPeriod is how long an answer about it is believed.
	policyPeriod = 5 * time.Minute
)

// policyLook finds out if the policy of the agents is in force. reader is of the API server; nil finds nothing out.
type policyLook struct {
	reader client.Reader

	mu      sync.Mutex
	at      time.Time
	problem string
}

// agentsUnbounded says why nothing bounds what agents may write, or "". An error leaves the last answer.
func (l *policyLook) agentsUnbounded(ctx context.Context, now time.Time) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reader == nil || !l.at.IsZero() && now.Before(l.at.Add(policyPeriod)) {
		return l.problem
	}
	problem, err := findProblem(ctx, l.reader)
	if l.at = now; err != nil {
		log.FromContext(ctx).Info("the policy of the agents can't be read", "policy", agentPolicy, "error", err.Error())
		return l.problem
	}
	l.problem = problem
	metrics.SetAgentPolicyMissing(problem != "")
	return problem
}

func findProblem(ctx context.Context, reader client.Reader) (string, error) {
	const apply = ": a stolen token of an agent can change its Node at will; apply config/hostupdate"
	name := types.NamespacedName{Name: agentPolicy}
	var policy admissionregistrationv1.ValidatingAdmissionPolicy
	var binding admissionregistrationv1.ValidatingAdmissionPolicyBinding
	if err := reader.Get(ctx, name, &policy); apierrors.IsNotFound(err) {
		return "there is no ValidatingAdmissionPolicy " + agentPolicy + apply, nil
	} else if err != nil {
		return "", err
	}
	switch err := reader.Get(ctx, name, &binding); {
	case apierrors.IsNotFound(err):
		return "there is no ValidatingAdmissionPolicyBinding " + agentPolicy + apply, nil
	case err != nil:
		return "", err
	case binding.Spec.PolicyName != agentPolicy, !slices.Contains(binding.Spec.ValidationActions, admissionregistrationv1.Deny):
		return "ValidatingAdmissionPolicyBinding " + agentPolicy + " does not make the policy " + agentPolicy + " deny" + apply, nil
	}
	return "", nil
}
