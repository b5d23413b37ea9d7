// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
)

// A Job that system-upgrade-controller left running is taken over: it is not run again, and its result counts.
func TestPlanAdoptsARunningJob(t *testing.T) {
	t.Parallel()
	name := takeSimulated(t, 1)[0]
	p := newPlan(t, "adopts", "true")
	p.Spec.Concurrency = 0
	p.Spec.Cordon = true
	create(t, p)
	hash := status(t, p.Name, "resolved", func(s *upgradev1.PlanStatus) bool { return s.LatestHash != "" }).Status.LatestHash
	patchNode(t, name, map[string]any{"spec": map[string]any{"unschedulable": true}})
	labels := map[string]string{
		"upgrade.cattle.io/controller": "system-upgrade-controller", "upgrade.cattle.io/node": name, "upgrade.cattle.io/plan": p.Name,
		"upgrade.cattle.io/version": "v1", "plan.upgrade.cattle.io/" + p.Name: hash,
	}
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: "apply-adopts-by-another", Labels: labels,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(get(t, p.Name), upgradev1.GroupVersion.WithKind("Plan"))},
		},
		Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: map[string]string{"test.moult.dev/hang": "true"}},
			Spec: corev1.PodSpec{
				RestartPolicy: corev1.RestartPolicyNever,
				NodeSelector:  map[string]string{corev1.LabelHostname: name},
				Tolerations:   []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
				Containers:    []corev1.Container{{Name: "upgrade", Image: "x"}},
			},
		}},
	}
	if err := world.Create(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	status(t, p.Name, "applying the adopted job", func(s *upgradev1.PlanStatus) bool { return len(s.Applying) == 1 })
	if out, err := kubectl(t.Context(), "annotate", "pods", "-n", namespace, "-l", upgradev1.LabelPlan+"="+p.Name, "test.moult.dev/hang-"); err != nil {
		t.Fatal(err, out)
	}
	complete(t, p.Name)
	released(t, name, false)
	jobs := jobsOf(t, p.Name)
	if len(jobs) != 1 || jobs[0].UID != job.UID {
		t.Errorf("%d jobs, want the adopted one alone", len(jobs))
	}
}

// The examples are what the API server takes, to the last field.
func TestOwnExamplesAreValid(t *testing.T) {
	t.Parallel()
	out, err := kubectl(t.Context(), "apply", "--dry-run=server", "--validate=strict", "-f", "../../examples")
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
