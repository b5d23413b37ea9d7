// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
)

// A retry is for what has failed: what runs goes on.
func TestPlanRetryInterruptsNothing(t *testing.T) {
	t.Parallel()
	takeSimulated(t, 1)
	p := newPlan(t, "retry", "true")
	simulate(p, "hang")
	create(t, p)
	status(t, p.Name, "running", func(s *upgradev1.PlanStatus) bool {
		return len(s.Updating) == 1 && s.Updating[0].Phase == v1alpha1.PhaseChanging
	})
	before := jobsOf(t, p.Name)
	edit(t, p.Name, func(p *upgradev1.Plan) {
		p.Annotations[v1alpha1.AnnotationRetry] = "now"
		p.Spec.Concurrency = 3
	})
	status(t, p.Name, "seen", func(s *upgradev1.PlanStatus) bool { return len(s.Updating) == 1 })
	after := jobsOf(t, p.Name)
	if len(before) != 1 || len(after) != 1 || after[0].UID != before[0].UID || after[0].DeletionTimestamp != nil {
		t.Errorf("the job that ran was replaced: %d before, %d after", len(before), len(after))
	}
}

// A change that is done is not done again because its Job is gone before the node's delay is over.
func TestPlanSoakOutlivesItsJob(t *testing.T) {
	t.Parallel()
	name := takeSimulated(t, 1)[0]
	p := newPlan(t, "soaks", "true")
	p.Spec.PostCompleteDelay = &metav1.Duration{Duration: 30 * time.Second}
	create(t, p)
	status(t, p.Name, "soaking", func(s *upgradev1.PlanStatus) bool {
		return len(s.Updating) == 1 && s.Updating[0].Phase == v1alpha1.PhaseSoaking
	})
	for _, j := range jobsOf(t, p.Name) {
		if err := world.Delete(t.Context(), &j, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
			t.Fatal(err)
		}
	}
	throughout(t, "no other job", func(context.Context) error {
		for _, j := range jobsOf(t, p.Name) {
			if j.DeletionTimestamp == nil {
				return fmt.Errorf("job %s runs", j.Name)
			}
		}
		return nil
	}, func(context.Context) (string, bool) {
		s := get(t, p.Name).Status
		return describe(get(t, p.Name)), s.Counts != nil && s.Counts.Updated == 1
	})
	released(t, name, false)
}

// A Job that a policy refuses is told, keeps no node claimed, and is made when the policy allows it.
func TestPlanRefusedJobs(t *testing.T) {
	t.Parallel()
	name := takeSimulated(t, 1)[0]
	deny := admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "e2e-refused"},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
					Rule:       admissionregistrationv1.Rule{APIGroups: []string{"batch"}, APIVersions: []string{"v1"}, Resources: []string{"jobs"}},
				},
			}}},
			MatchConditions: []admissionregistrationv1.MatchCondition{{Name: "plan", Expression: "object.metadata.?labels['upgrade.cattle.io/plan'].orValue('') == 'refused'"}},
			Validations:     []admissionregistrationv1.Validation{{Expression: "false", Message: "no jobs today"}},
		},
	}
	binding := admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "e2e-refused"},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: "e2e-refused", ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	}
	for _, o := range []client.Object{&deny, &binding} {
		if err := world.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = world.Delete(context.WithoutCancel(t.Context()), o) })
	}
	probe := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "probe-", Namespace: namespace, Labels: map[string]string{upgradev1.LabelPlan: "refused"}},
		Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "x"}},
		}}},
	}
	eventually(t, "the policy is in force", func(ctx context.Context) (string, bool) {
		err := world.Create(ctx, probe.DeepCopy(), client.DryRunAll)
		return fmt.Sprint(err), err != nil && strings.Contains(err.Error(), "no jobs today")
	})
	p := newPlan(t, "refused", "true")
	p.Spec.Cordon = true
	create(t, p)
	status(t, p.Name, "says why", func(s *upgradev1.PlanStatus) bool {
		return len(s.Waiting) == 1 && s.Waiting[0].Reason == v1alpha1.ReasonJobRefused && strings.Contains(s.Waiting[0].Message, "no jobs today")
	})
	eventually(t, "the node is given back between attempts", func(context.Context) (string, bool) {
		claims := node(t, name).Annotations[v1alpha1.AnnotationClaims]
		return claims, claims == ""
	})
	if err := world.Delete(t.Context(), &binding); err != nil {
		t.Fatal(err)
	}
	complete(t, p.Name)
	released(t, name, false)
}
