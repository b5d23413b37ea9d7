// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
	job := &batchv1.Job{Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever,
		NodeSelector:  map[string]string{corev1.LabelHostname: name},
		Tolerations:   []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		Containers:    []corev1.Container{{Name: "upgrade", Image: "x"}},
	}}}}
	job.Namespace, job.Name, job.Labels = namespace, "apply-adopts-by-another", labels
	job.Spec.Template.Labels = labels
	job.Spec.Template.Annotations = map[string]string{"test.moult.dev/seconds": "3"}
	p = get(t, p.Name)
	job.OwnerReferences = append(job.OwnerReferences, ownerReference(p))
	if err := world.Create(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	status(t, p.Name, "applying the adopted job", func(s *upgradev1.PlanStatus) bool { return len(s.Applying) == 1 })
	complete(t, p.Name)
	released(t, name, false)
	jobs := jobsOf(t, p.Name)
	if len(jobs) != 1 || client.ObjectKeyFromObject(&jobs[0]) != client.ObjectKeyFromObject(job) {
		t.Errorf("%d jobs, want the adopted one alone", len(jobs))
	}
}

// A Job that was left running on a node which the Plan does not select any more is not left there: it is stopped, and the
// node is given back.
func TestPlanAdoptsAJobOnANodeThatLeft(t *testing.T) {
	t.Parallel()
	name := takeSimulated(t, 1)[0]
	p := newPlan(t, "left", "true")
	p.Spec.Concurrency = 0
	p.Spec.Cordon = true
	p.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{target: "nowhere"}}
	create(t, p)
	hash := status(t, p.Name, "resolved", func(s *upgradev1.PlanStatus) bool { return s.LatestHash != "" }).Status.LatestHash
	patchNode(t, name, map[string]any{"spec": map[string]any{"unschedulable": true}})
	labels := map[string]string{
		"upgrade.cattle.io/controller": "system-upgrade-controller", "upgrade.cattle.io/node": name, "upgrade.cattle.io/plan": p.Name,
		"upgrade.cattle.io/version": "v1", "plan.upgrade.cattle.io/" + p.Name: hash,
	}
	job := &batchv1.Job{Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever,
		NodeSelector:  map[string]string{corev1.LabelHostname: name},
		Tolerations:   []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		Containers:    []corev1.Container{{Name: "upgrade", Image: "x"}},
	}}}}
	job.Namespace, job.Name, job.Labels = namespace, "apply-left-by-another", labels
	job.Spec.Template.Labels = labels
	job.Spec.Template.Annotations = map[string]string{"test.moult.dev/hang": "true"}
	job.OwnerReferences = append(job.OwnerReferences, ownerReference(get(t, p.Name)))
	if err := world.Create(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the node is given back", func(context.Context) (string, bool) {
		n := node(t, name)
		return fmt.Sprint(n.Annotations, n.Spec.Unschedulable), len(jobsOf(t, p.Name)) == 0 && !n.Spec.Unschedulable
	})
	released(t, name, false)
}

// The examples are what the API server takes, to the last field.
func TestOwnExamplesAreValid(t *testing.T) {
	t.Parallel()
	out, err := kubectl(t.Context(), "apply", "--dry-run=server", "--validate=strict", "-f", "../../examples")
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
