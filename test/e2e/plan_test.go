// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
)

// A Plan runs its Job once on every machine, and once more when a Secret of the Plan changes.
func TestPlanUpgradesEveryMachine(t *testing.T) {
	t.Parallel()
	all := takeMachines(t, machines)
	byHand := all[0].Name()
	if out, err := kubectl(t.Context(), "cordon", byHand); err != nil {
		t.Fatal(err, out)
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "e2e-secret", Namespace: namespace},
		StringData: map[string]string{"word": "one"},
	}
	if err := world.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = world.Delete(context.WithoutCancel(t.Context()), secret) })
	p := newPlan(t, "every-machine", `cat /host/etc/hostname
		echo "$SYSTEM_UPGRADE_PLAN_LATEST_VERSION $(cat /run/system-upgrade/secrets/e2e-secret/word)" >> /host/var/every-machine`)
	p.Spec.Version = "v1.2.3+k3s1"
	p.Spec.Cordon = true
	p.Spec.Secrets = []upgradev1.SecretSpec{{Name: secret.Name}, {Name: "e2e-absent", Path: "/absent", IgnoreUpdates: true}}
	p.Spec.PostCompleteLabels = map[string]string{"e2e.moult.dev/version": "at-$(LATEST_VERSION)"}
	create(t, p)
	first := complete(t, p.Name).Status.LatestHash

	secret.StringData = map[string]string{"word": "two"}
	if err := world.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	status(t, p.Name, "has a new hash", func(s *upgradev1.PlanStatus) bool { return s.LatestHash != first })
	p = complete(t, p.Name)
	if diff := cmp.Diff(&v1alpha1.UnitCounts{Total: machines, Updated: machines}, p.Status.Counts); diff != "" {
		t.Errorf("counts (-want +got)\n%s", diff)
	}
	for _, kind := range []string{upgradev1.ConditionReady, upgradev1.ConditionValidated, upgradev1.ConditionLatestResolved} {
		if c := p.Status.Condition(kind); c == nil || c.Status != metav1.ConditionTrue || c.ObservedGeneration != p.Generation {
			t.Errorf("condition %s is %+v", kind, c)
		}
	}
	for _, m := range all {
		released(t, m.Name(), m.Name() == byHand)
		got := node(t, m.Name()).Labels
		if hash := got[upgradev1.LabelPlanHash(p.Name)]; hash != p.Status.LatestHash {
			t.Errorf("node %s has hash %q, want %q", m.Name(), hash, p.Status.LatestHash)
		}
		if version := got["e2e.moult.dev/version"]; version != "at-v1.2.3-k3s1" {
			t.Errorf("node %s has version %q", m.Name(), version)
		}
		if described, err := kubectl(t.Context(), "describe", "node", m.Name()); err != nil || !strings.Contains(described, "Updated to v1.2.3-k3s1 by Plan/"+namespace+"/"+p.Name+" in ") {
			t.Errorf("node %s is described without its turn: %v\n%s", m.Name(), err, described)
		}
		if diff := cmp.Diff([]string{"v1.2.3-k3s1 one", "v1.2.3-k3s1 two"}, lines(t, m, "/var/every-machine")); diff != "" {
			t.Errorf("what ran on %s (-want +got)\n%s", m.Name(), diff)
		}
	}
	eventually(t, "events", func(context.Context) (string, bool) {
		got := eventReasons(t, "Plan", p.Name)
		return fmt.Sprint(got), got["JobComplete"] >= 1 && got["SyncJob"] >= 1 && got["Validated"] >= 1 && got["Complete"] >= 1
	})
}

// A new version replaces the Job that runs.
func TestPlanChangesInFlight(t *testing.T) {
	t.Parallel()
	takeSimulated(t, 1)
	p := newPlan(t, "in-flight", "true")
	simulate(p, "hang")
	create(t, p)
	isChanging := func(s *upgradev1.PlanStatus) bool {
		return len(s.Updating) == 1 && s.Updating[0].Phase == v1alpha1.PhaseChanging
	}
	status(t, p.Name, "running", isChanging)
	before := jobsOf(t, p.Name)
	edit(t, p.Name, func(p *upgradev1.Plan) { p.Spec.Version = "v2" })
	eventually(t, "the Job of v2", func(context.Context) (string, bool) {
		var versions []string
		for _, j := range jobsOf(t, p.Name) {
			versions = append(versions, j.Labels[upgradev1.LabelVersion])
		}
		if len(before) != 1 || len(versions) > 1 {
			t.Fatalf("%d Jobs of v1 ran, and then at once Jobs of %v", len(before), versions)
		}
		return fmt.Sprint(versions), slices.Equal(versions, []string{"v2"})
	})
	status(t, p.Name, "running v2", isChanging)
}

// A Plan that is mended after a failure replaces its failed Job, as system-upgrade-controller does. It needs no image before.
func TestPlanMendedAfterFailures(t *testing.T) {
	t.Parallel()
	takeSimulated(t, 1)
	p := newPlan(t, "mended", "true")
	image := p.Spec.Upgrade.Image
	p.Spec.Upgrade.Image = ""
	simulate(p, "fail")
	create(t, p)
	status(t, p.Name, "is resolved, and says that its Job has no image", func(s *upgradev1.PlanStatus) bool {
		resolved := s.Condition(upgradev1.ConditionLatestResolved)
		return resolved != nil && resolved.Status == metav1.ConditionTrue && s.LatestHash != "" && len(s.Updating) == 1 &&
			s.Updating[0].Reason == v1alpha1.ReasonJobRefused && strings.Contains(s.Updating[0].Message, "containers[0].image: Required value")
	})
	edit(t, p.Name, func(p *upgradev1.Plan) { p.Spec.Upgrade.Image = image })
	status(t, p.Name, "has failed", func(s *upgradev1.PlanStatus) bool {
		return len(s.Failed) == 1 && s.Failed[0].Reason == v1alpha1.ReasonJobFailed
	})
	before := jobsOf(t, p.Name)
	edit(t, p.Name, func(p *upgradev1.Plan) { p.Annotations = nil })
	complete(t, p.Name)
	if after := jobsOf(t, p.Name); len(before) != 1 || len(after) != 1 || after[0].UID == before[0].UID || after[0].Status.Succeeded != 1 {
		t.Errorf("the Jobs were %v and are %v", before, after)
	}
}

// A version that fails on three machines is taken back: they run the Job of the version before.
func TestPlanRollsBack(t *testing.T) {
	t.Parallel()
	all := takeMachines(t, machines)
	p := newPlan(t, "rolls-back", `echo "$SYSTEM_UPGRADE_PLAN_LATEST_VERSION" >> /host/var/rolls-back
		test "$SYSTEM_UPGRADE_PLAN_LATEST_VERSION" = v1`)
	p.Spec.Strategy = &v1alpha1.Strategy{MaxFailures: ptr.To(intstr.FromInt32(machines - 1)), Rollback: true}
	create(t, p)
	first := complete(t, p.Name).Status.LatestHash
	edit(t, p.Name, func(p *upgradev1.Plan) { p.Spec.Version = "v2" })
	status(t, p.Name, "is rolled back", func(s *upgradev1.PlanStatus) bool {
		return s.RolledBack != nil && s.RolledBack.Version == "v2" && s.LatestHash == first
	})
	complete(t, p.Name)
	for _, m := range all {
		released(t, m.Name(), false)
		if hash := node(t, m.Name()).Labels[upgradev1.LabelPlanHash(p.Name)]; hash != first {
			t.Errorf("node %s has hash %q, want %q", m.Name(), hash, first)
		}
		if diff := cmp.Diff([]string{"v1", "v2", "v1"}, slices.Compact(lines(t, m, "/var/rolls-back"))); diff != "" {
			t.Errorf("what ran on %s (-want +got)\n%s", m.Name(), diff)
		}
	}
	eventually(t, "events", func(context.Context) (string, bool) {
		got := eventReasons(t, "Plan", p.Name)
		return fmt.Sprint(got), got["RolledBack"] == 1
	})
}

// Plans that do not cordon share a node. An exclusive one waits until it has the node alone.
func TestPlansShareANode(t *testing.T) {
	t.Parallel()
	name := takeSimulated(t, 1)[0]
	a, b, c := newPlan(t, "shared-a", "true"), newPlan(t, "shared-b", "true"), newPlan(t, "shared-c", "true")
	for _, p := range []*upgradev1.Plan{a, b} {
		simulate(p, "hang")
		create(t, p)
	}
	for _, p := range []*upgradev1.Plan{a, b} {
		status(t, p.Name, "is applied beside the other", func(s *upgradev1.PlanStatus) bool { return len(s.Applying) == 1 })
	}
	c.Spec.Exclusive = true
	create(t, c)
	message := waits(t, c.Name, v1alpha1.ReasonClaimed)
	if !strings.Contains(message, "Plan/system-upgrade/shared-") {
		t.Errorf("it says %q", message)
	}
	if jobs := jobsOf(t, c.Name); len(jobs) > 0 {
		t.Errorf("%d Jobs were made beside those of the other Plans", len(jobs))
	}
	remove(t, a.Name)
	remove(t, b.Name)
	complete(t, c.Name)
	released(t, name, false)
}

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
	for _, overlay := range []string{"bottlerocket", "ducklett"} {
		out, err := kubectl(t.Context(), "apply", "--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict", "-k", "../../examples/"+overlay)
		if err != nil {
			t.Errorf("%s: %v\n%s", overlay, err, out)
		}
	}
}

// waits returns what a Plan says of a waiting node, once one waits for this reason.
func waits(t *testing.T, plan string, reason v1alpha1.Reason) (message string) {
	t.Helper()
	status(t, plan, "waits for "+string(reason), func(s *upgradev1.PlanStatus) bool {
		for _, w := range s.Waiting {
			if w.Reason == reason {
				message = w.Message
				return true
			}
		}
		return false
	})
	return message
}

// deleteNow deletes an object without waiting for what it owns or runs.
func deleteNow(t *testing.T, o client.Object) {
	t.Helper()
	if err := client.IgnoreNotFound(world.Delete(context.WithoutCancel(t.Context()), o,
		client.PropagationPolicy(metav1.DeletePropagationBackground), client.GracePeriodSeconds(0))); err != nil {
		t.Error(err)
	}
}
