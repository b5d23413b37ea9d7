// SPDX-License-Identifier: Apache-2.0

package hostupdate

import (
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// The agents are bounded by the policy together with a binding that denies. An answer is believed for some minutes.
func TestAgentsUnbounded(t *testing.T) {
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: agentPolicy}}
	binding := func(policy string, action admissionregistrationv1.ValidationAction) *admissionregistrationv1.ValidatingAdmissionPolicyBinding {
		return &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
			ObjectMeta: metav1.ObjectMeta{Name: agentPolicy},
			Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName: policy, ValidationActions: []admissionregistrationv1.ValidationAction{action},
			},
		}
	}
	denies := binding(agentPolicy, admissionregistrationv1.Deny)
	for want, there := range map[string][]client.Object{
		"":                                  {policy, denies},
		"no ValidatingAdmissionPolicy ":     {denies},
		"no ValidatingAdmissionPolicyBind":  {policy},
		"does not make the policy moult-ag": {policy, binding(agentPolicy, admissionregistrationv1.Warn)},
	} {
		c := fake.NewClientBuilder().WithObjects(there...).Build()
		l := &policyLook{reader: c}
		start := time.Now()
		got := l.agentsUnbounded(t.Context(), start)
		if (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		if err := client.IgnoreNotFound(c.Delete(t.Context(), policy.DeepCopy())); err != nil {
			t.Fatal(err)
		}
		if later := l.agentsUnbounded(t.Context(), start.Add(policyPeriod-1)); later != got {
			t.Errorf("%q: asked again too soon", want)
		}
		if later := l.agentsUnbounded(t.Context(), start.Add(policyPeriod)); !strings.Contains(later, "no ValidatingAdmissionPolicy ") {
			t.Errorf("%q: got %q without the policy", want, later)
		}
	}
}
