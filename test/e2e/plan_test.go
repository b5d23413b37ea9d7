// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/hack/image"
)

func TestPlanUpgradesEveryNode(t *testing.T) {
	t.Parallel()
	names := take(t, 2)
	p := newPlan(t, "every-node", `cat /host/etc/hostname; echo "$SYSTEM_UPGRADE_PLAN_LATEST_VERSION" >> /host/var/every-node`)
	p.Spec.Version = "v1.2.3+k3s1"
	p.Spec.Concurrency = 1
	p.Spec.Cordon = true
	create(t, p)
	p = complete(t, p.Name)

	if want := "v1.2.3-k3s1"; p.Status.LatestVersion != want {
		t.Errorf("latestVersion is %q, want %q", p.Status.LatestVersion, want)
	}
	if len(p.Status.Applying) != 0 || len(p.Status.Updating) != 0 {
		t.Errorf("a complete plan is still applying: %s", describe(p))
	}
	if diff := cmp.Diff(&v1alpha1.UnitCounts{Total: 2, Updated: 2}, p.Status.Counts); diff != "" {
		t.Errorf("counts (-want +got)\n%s", diff)
	}
	for _, kind := range []string{upgradev1.ConditionReady, upgradev1.ConditionValidated, upgradev1.ConditionLatestResolved} {
		if c := p.Status.Condition(kind); c == nil || c.Status != metav1.ConditionTrue || c.ObservedGeneration != p.Generation {
			t.Errorf("condition %s is %+v", kind, c)
		}
	}
	for _, name := range names {
		released(t, name, false)
		if got := node(t, name).Labels[upgradev1.LabelPlanHash(p.Name)]; got != p.Status.LatestHash {
			t.Errorf("node %s has hash %q, want %q", name, got, p.Status.LatestHash)
		}
		if m := world.Machine(name); m != nil {
			if diff := cmp.Diff([]string{"v1.2.3-k3s1"}, lines(t, m, "/var/every-node")); diff != "" {
				t.Errorf("what ran on %s (-want +got)\n%s", name, diff)
			}
		}
	}
	eventually(t, "events", func(context.Context) (string, bool) {
		got := eventReasons(t, p.Name)
		ok := got["JobComplete"] == 2 && got["SyncJob"] >= 1 && got["Validated"] == 1 && got["Resolved"] == 1 && got["Complete"] == 1
		return fmt.Sprint(got), ok
	})

	// Settled: what happens on its nodes makes no write.
	before := get(t, p.Name).ResourceVersion
	patchNode(t, names[0], map[string]any{"metadata": map[string]any{"labels": map[string]any{"e2e.moult.dev/noise": "1"}}})
	patchNode(t, names[0], map[string]any{"metadata": map[string]any{"labels": map[string]any{"e2e.moult.dev/noise": nil}}})
	other := newPlan(t, "every-node-clock", "true")
	create(t, other)
	complete(t, other.Name)
	if after := get(t, p.Name).ResourceVersion; after != before {
		t.Errorf("a settled plan was written again: %s", describe(get(t, p.Name)))
	}
}

func TestPlanFailsThenIsFixed(t *testing.T) {
	t.Parallel()
	name := take(t, 1)[0]
	p := newPlan(t, "fails", `echo run >> /host/var/fails; exit 3`)
	p.Spec.Cordon = true
	simulate(p, "fail")
	create(t, p)
	message := condition(t, p.Name, upgradev1.ConditionComplete, metav1.ConditionFalse, upgradev1.ReasonJobFailed)
	if !strings.HasPrefix(message, "Job system-upgrade/apply-fails-on-") || !strings.Contains(message, " failed on Node "+name+": BackoffLimitExceeded: ") {
		t.Errorf("message is %q", message)
	}
	p = status(t, p.Name, "lists the failure", func(s *upgradev1.PlanStatus) bool {
		return len(s.Failed) == 1 && s.Failed[0].Node == name && s.Failed[0].Reason == v1alpha1.ReasonJobFailed && s.Counts.Failed == 1
	})
	if len(p.Status.Applying) != 1 {
		t.Errorf("a failed node keeps its slot, but applying is %v", p.Status.Applying)
	}
	if c := p.Status.Condition(upgradev1.ConditionStalled); c == nil || c.Status != metav1.ConditionTrue {
		t.Errorf("stalled is %+v", c)
	}
	if n := len(jobsOf(t, p.Name)); n != 1 {
		t.Errorf("%d jobs, want 1", n)
	}

	// Deleting the failed Job, as its TTL does, brings no retry.
	for _, j := range jobsOf(t, p.Name) {
		if err := world.Delete(t.Context(), &j, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
			t.Fatal(err)
		}
	}
	patchNode(t, name, map[string]any{"metadata": map[string]any{"annotations": map[string]any{"e2e.moult.dev/noise": "1"}}})
	clock := newPlan(t, "fails-clock", "true")
	clock.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{target: "nowhere"}}
	create(t, clock)
	complete(t, clock.Name)
	if n := len(jobsOf(t, p.Name)); n != 0 {
		t.Errorf("%d jobs after the failed one was deleted, want none", n)
	}

	// Each change brings one attempt.
	edit(t, p.Name, func(p *upgradev1.Plan) { p.Spec.Upgrade.Args = []string{`echo again >> /host/var/fails; exit 4`} })
	second := status(t, p.Name, "fails again", func(s *upgradev1.PlanStatus) bool {
		return len(s.Failed) == 1 && s.Failed[0].Message != message
	}).Status.Failed[0].Message
	if n := len(jobsOf(t, p.Name)); n != 1 {
		t.Errorf("%d jobs after one change, want 1", n)
	}

	// A retry that a person asks for.
	edit(t, p.Name, func(p *upgradev1.Plan) {
		p.Annotations = map[string]string{v1alpha1.AnnotationRetry: "now"}
		simulate(p, "fail")
	})
	eventually(t, "retrying", func(context.Context) (string, bool) {
		jobs := jobsOf(t, p.Name)
		return fmt.Sprint(len(jobs)), len(jobs) == 2
	})
	status(t, p.Name, "fails a third time", func(s *upgradev1.PlanStatus) bool {
		return len(s.Failed) == 1 && s.Failed[0].Message != second && s.Failed[0].Message != message
	})

	edit(t, p.Name, func(p *upgradev1.Plan) {
		p.Spec.Upgrade.Args = []string{`echo well >> /host/var/fails`}
		p.Annotations = nil
	})
	complete(t, p.Name)
	released(t, name, false)
	if m := world.Machine(name); m != nil {
		if diff := cmp.Diff([]string{"run", "again", "again", "well"}, lines(t, m, "/var/fails")); diff != "" {
			t.Errorf("what ran (-want +got)\n%s", diff)
		}
	}
}

// simulate tells simulated nodes, which run nothing, how the Plan's pods end.
func simulate(p *upgradev1.Plan, how string) {
	if p.Annotations == nil {
		p.Annotations = map[string]string{}
	}
	p.Annotations["test.moult.dev/"+how] = "true"
}

func TestPlanFailureSurvivesRestart(t *testing.T) {
	// Not parallel: it restarts the operator.
	name := take(t, 1)[0]
	p := newPlan(t, "fails-once", "exit 1")
	simulate(p, "fail")
	create(t, p)
	condition(t, p.Name, upgradev1.ConditionComplete, metav1.ConditionFalse, upgradev1.ReasonJobFailed)
	for _, j := range jobsOf(t, p.Name) {
		if err := world.Delete(t.Context(), &j, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
			t.Fatal(err)
		}
	}
	restartOperator(t)
	clock := newPlan(t, "fails-once-clock", "true")
	clock.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{target: "nowhere"}}
	create(t, clock)
	complete(t, clock.Name)
	if jobs := jobsOf(t, p.Name); len(jobs) != 0 {
		t.Errorf("a restart brought %d jobs for a failed node", len(jobs))
	}
	if s := get(t, p.Name).Status; len(s.Failed) != 1 || s.Failed[0].Node != name {
		t.Errorf("the failure is forgotten: %s", describe(get(t, p.Name)))
	}
}

func restartOperator(t *testing.T) {
	t.Helper()
	world.operator.Kill()
	if err := startOperator(); err != nil {
		t.Fatal(err)
	}
}

func TestPlanDeadline(t *testing.T) {
	t.Parallel()
	name := take(t, 1)[0]
	p := newPlan(t, "deadline", "sleep 3600")
	seconds := int64(3)
	p.Spec.JobActiveDeadlineSecs = &seconds
	simulate(p, "hang")
	create(t, p)
	message := condition(t, p.Name, upgradev1.ConditionComplete, metav1.ConditionFalse, upgradev1.ReasonJobFailed)
	if !strings.Contains(message, "DeadlineExceeded") {
		t.Errorf("message is %q", message)
	}
	edit(t, p.Name, func(p *upgradev1.Plan) {
		p.Spec.Upgrade.Args, p.Annotations, p.Spec.JobActiveDeadlineSecs = []string{"true"}, nil, nil
	})
	complete(t, p.Name)
	released(t, name, false)
}

func TestPlanWindow(t *testing.T) {
	t.Parallel()
	name := take(t, 1)[0]
	p := newPlan(t, "window", "true")
	now := time.Now().UTC()
	// Closed today and tomorrow, so that midnight does no harm.
	day := func(after int) upgradev1.Day {
		return upgradev1.Day(strings.ToLower(now.AddDate(0, 0, after).Weekday().String()))
	}
	p.Spec.Window = &upgradev1.TimeWindowSpec{Days: []upgradev1.Day{day(3)}, StartTime: "01:00", EndTime: "2am"}
	create(t, p)
	message := condition(t, p.Name, upgradev1.ConditionComplete, metav1.ConditionFalse, upgradev1.ReasonWaiting)
	if message != "current time is not within configured window" {
		t.Errorf("message is %q", message)
	}
	opens := time.Date(now.Year(), now.Month(), now.Day()+3, 1, 0, 0, 0, time.UTC).Format(time.RFC3339)
	s := get(t, p.Name).Status
	if len(s.Waiting) != 1 || s.Waiting[0].Node != name || s.Waiting[0].Reason != v1alpha1.ReasonOutsideWindow || !strings.HasSuffix(s.Waiting[0].Message, opens) {
		t.Errorf("waiting is %+v, want %s until %s", s.Waiting, name, opens)
	}
	if jobs := jobsOf(t, p.Name); len(jobs) != 0 {
		t.Errorf("%d jobs outside of the window", len(jobs))
	}
	edit(t, p.Name, func(p *upgradev1.Plan) {
		p.Spec.Window = &upgradev1.TimeWindowSpec{Days: []upgradev1.Day{day(0), day(1)}, StartTime: "00:00", EndTime: "23:59:59"}
	})
	complete(t, p.Name)

	edit(t, p.Name, func(p *upgradev1.Plan) { p.Spec.Window.TimeZone = "Mars/Olympus" })
	message = condition(t, p.Name, upgradev1.ConditionValidated, metav1.ConditionFalse, upgradev1.ReasonError)
	if !strings.HasPrefix(message, "spec.window is invalid") {
		t.Errorf("message is %q", message)
	}
}

func TestPlanSecrets(t *testing.T) {
	t.Parallel()
	name := take(t, 1)[0]
	p := newPlan(t, "secrets", `cat /run/system-upgrade/secrets/e2e-secret/word >> /host/var/secrets`)
	p.Spec.Secrets = []upgradev1.SecretSpec{{Name: "e2e-secret"}, {Name: "e2e-absent", Path: "/absent", IgnoreUpdates: true}}
	create(t, p)
	message := condition(t, p.Name, upgradev1.ConditionValidated, metav1.ConditionFalse, upgradev1.ReasonError)
	if message != `secrets "e2e-secret" not found` {
		t.Errorf("message is %q", message)
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "e2e-secret", Namespace: namespace},
		StringData: map[string]string{"word": "one\n"},
	}
	if err := world.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = world.Delete(context.WithoutCancel(t.Context()), secret) })
	first := complete(t, p.Name).Status.LatestHash

	secret.StringData = map[string]string{"word": "two\n"}
	if err := world.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	status(t, p.Name, "has a new hash", func(s *upgradev1.PlanStatus) bool { return s.LatestHash != first })
	second := complete(t, p.Name).Status.LatestHash
	if got := node(t, name).Labels[upgradev1.LabelPlanHash(p.Name)]; got != second {
		t.Errorf("node has hash %q, want %q", got, second)
	}
	if m := world.Machine(name); m != nil {
		if diff := cmp.Diff([]string{"one", "two"}, lines(t, m, "/var/secrets")); diff != "" {
			t.Errorf("what ran (-want +got)\n%s", diff)
		}
	}
}

func TestPlanOptOut(t *testing.T) {
	t.Parallel()
	names := take(t, 2)
	patchNode(t, names[0], map[string]any{"metadata": map[string]any{"labels": map[string]any{upgradev1.LabelPlanHash("opt-out"): upgradev1.LabelDisabled}}})
	p := newPlan(t, "opt-out", "true")
	create(t, p)
	p = complete(t, p.Name)
	if diff := cmp.Diff(&v1alpha1.UnitCounts{Total: 1, Updated: 1}, p.Status.Counts); diff != "" {
		t.Errorf("counts (-want +got)\n%s", diff)
	}
	patchNode(t, names[0], map[string]any{"metadata": map[string]any{"labels": map[string]any{upgradev1.LabelPlanHash("opt-out"): nil}}})
	status(t, p.Name, "opted in", func(s *upgradev1.PlanStatus) bool { return s.Counts.Total == 2 && s.Counts.Updated == 2 })
	if n := len(jobsOf(t, p.Name)); n != 2 {
		t.Errorf("%d jobs, want 2", n)
	}
}

func TestPlansExclusive(t *testing.T) {
	t.Parallel()
	name := take(t, 1)[0]
	const command = `echo begin >> /host/var/exclusive; sleep %d; echo end >> /host/var/exclusive`
	a, b := newPlan(t, "exclusive-a", fmt.Sprintf(command, 20)), newPlan(t, "exclusive-b", fmt.Sprintf(command, 1))
	a.Annotations = map[string]string{"test.moult.dev/seconds": "20"}
	a.Spec.Exclusive, b.Spec.Exclusive = true, true
	// The second one is there, and starts none, until the first one runs for long enough to be waited for.
	b.Spec.Concurrency = 0
	create(t, b)
	create(t, a)
	status(t, a.Name, "running", func(s *upgradev1.PlanStatus) bool {
		return len(s.Updating) == 1 && s.Updating[0].Phase == v1alpha1.PhaseChanging
	})
	edit(t, b.Name, func(p *upgradev1.Plan) { p.Spec.Concurrency = 1 })
	waited := false
	throughout(t, "one exclusive plan at a time", func(context.Context) error {
		running := 0
		for _, j := range jobsOf(t, a.Name, b.Name) {
			if j.Status.CompletionTime == nil {
				running++
			}
		}
		for _, w := range get(t, b.Name).Status.Waiting {
			waited = waited || w.Reason == v1alpha1.ReasonClaimed && strings.Contains(w.Message, "Plan/system-upgrade/"+a.Name)
		}
		if running > 1 {
			return fmt.Errorf("%d jobs run on %s", running, name)
		}
		return nil
	}, func(context.Context) (string, bool) {
		x, y := get(t, a.Name).Status, get(t, b.Name).Status
		return fmt.Sprint(x.Counts, y.Counts), x.Counts != nil && x.Counts.Updated == 1 && y.Counts != nil && y.Counts.Updated == 1
	})
	if !waited {
		t.Error("the second plan never said that it waits for the first")
	}
	if m := world.Machine(name); m != nil {
		if diff := cmp.Diff([]string{"begin", "end", "begin", "end"}, lines(t, m, "/var/exclusive")); diff != "" {
			t.Errorf("what ran (-want +got)\n%s", diff)
		}
	}
	released(t, name, false)
}

func TestPlansShared(t *testing.T) {
	t.Parallel()
	name := take(t, 1)[0]
	a, b, c := newPlan(t, "shared-a", "sleep 3600"), newPlan(t, "shared-b", "sleep 3600"), newPlan(t, "shared-c", "true")
	simulate(a, "hang")
	simulate(b, "hang")
	c.Spec.Cordon = true
	create(t, a)
	create(t, b)
	both := func(s *upgradev1.PlanStatus) bool { return len(s.Applying) == 1 }
	status(t, a.Name, "applying", both)
	status(t, b.Name, "applying beside it", both)
	create(t, c)
	status(t, c.Name, "waits for both", func(s *upgradev1.PlanStatus) bool {
		return len(s.Waiting) == 1 && s.Waiting[0].Reason == v1alpha1.ReasonClaimed
	})
	remove(t, a.Name)
	remove(t, b.Name)
	complete(t, c.Name)
	released(t, name, false)
}

func TestPlanDeletedInFlight(t *testing.T) {
	t.Parallel()
	m := takeMachines(t, 1)[0]
	p := newPlan(t, "deleted", "sleep 3600")
	p.Spec.Cordon = true
	create(t, p)
	status(t, p.Name, "changing the node", func(s *upgradev1.PlanStatus) bool {
		return len(s.Updating) == 1 && s.Updating[0].Phase == v1alpha1.PhaseChanging
	})
	if !node(t, m.Name()).Spec.Unschedulable {
		t.Fatal("the node is not cordoned in mid flight")
	}
	if err := world.Delete(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the node is released", func(context.Context) (string, bool) {
		n := node(t, m.Name())
		return fmt.Sprint(n.Annotations, n.Spec.Unschedulable), !n.Spec.Unschedulable && n.Annotations[v1alpha1.AnnotationClaims] == ""
	})
	if jobs := jobsOf(t, p.Name); len(jobs) != 0 {
		t.Errorf("%d jobs are left", len(jobs))
	}
	released(t, m.Name(), false)
}

func TestPlanKeepsAPersonsCordon(t *testing.T) {
	t.Parallel()
	m := takeMachines(t, 1)[0]
	if out, err := kubectl(t.Context(), "cordon", m.Name()); err != nil {
		t.Fatal(err, out)
	}
	p := newPlan(t, "cordoned", "true")
	p.Spec.Drain = &upgradev1.DrainSpec{Force: true, PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"no": "pod"}}}
	create(t, p)
	complete(t, p.Name)
	released(t, m.Name(), true)
}

func TestPlanDelayAndLabels(t *testing.T) {
	t.Parallel()
	names := take(t, 2)
	p := newPlan(t, "delay", "true")
	p.Spec.Concurrency = 1
	p.Spec.PostCompleteDelay = &metav1.Duration{Duration: 15 * time.Second}
	p.Spec.PostCompleteLabels = map[string]string{"e2e.moult.dev/version": "at-$(LATEST_VERSION)", "e2e.moult.dev/raw": "x"}
	create(t, p)
	status(t, p.Name, "soaking", func(s *upgradev1.PlanStatus) bool {
		return len(s.Updating) == 1 && s.Updating[0].Phase == v1alpha1.PhaseSoaking && len(s.Applying) == 1
	})
	complete(t, p.Name)
	var ends []time.Time
	for _, j := range jobsOf(t, p.Name) {
		ends = append(ends, j.Status.CompletionTime.Time, j.CreationTimestamp.Time)
	}
	slices.SortFunc(ends, time.Time.Compare)
	// First made, first ended, second made, second ended; times are whole seconds.
	if len(ends) != 4 || ends[2].Sub(ends[1]) < 15*time.Second {
		t.Errorf("the second node did not wait for the first one's delay: %v", ends)
	}
	for _, name := range names {
		if got := node(t, name).Labels["e2e.moult.dev/version"]; got != "at-v1" {
			t.Errorf("node %s has label %q", name, got)
		}
	}
	eventually(t, "two events JobCompleteWaiting", func(context.Context) (string, bool) {
		got := eventReasons(t, p.Name)
		return fmt.Sprint(got), got["JobCompleteWaiting"] == 2
	})
}

func TestPlanVersionChangesInFlight(t *testing.T) {
	t.Parallel()
	name := take(t, 1)[0]
	p := newPlan(t, "moves-on", `echo "$SYSTEM_UPGRADE_PLAN_LATEST_VERSION" >> /host/var/moves-on; [ "$SYSTEM_UPGRADE_PLAN_LATEST_VERSION" != v1 ] || sleep 3600`)
	p.Spec.Cordon = true
	simulate(p, "hang")
	create(t, p)
	status(t, p.Name, "running", func(s *upgradev1.PlanStatus) bool {
		return len(s.Updating) == 1 && s.Updating[0].Phase == v1alpha1.PhaseChanging
	})
	edit(t, p.Name, func(p *upgradev1.Plan) { p.Spec.Version, p.Annotations = "v2", nil })
	throughout(t, "one job at a time", func(context.Context) error {
		if n := len(jobsOf(t, p.Name)); n > 1 {
			return fmt.Errorf("%d jobs at once", n)
		}
		return nil
	}, func(context.Context) (string, bool) {
		s := get(t, p.Name).Status
		return describe(get(t, p.Name)), s.LatestVersion == "v2" && s.Counts.Updated == 1
	})
	released(t, name, false)
	if m := world.Machine(name); m != nil {
		if diff := cmp.Diff([]string{"v1", "v2"}, lines(t, m, "/var/moves-on")); diff != "" {
			t.Errorf("what ran (-want +got)\n%s", diff)
		}
	}
}

func TestPlanConcurrencyZeroIsNotComplete(t *testing.T) {
	t.Parallel()
	take(t, 1)
	p := newPlan(t, "zero", "true")
	p.Spec.Concurrency = 0
	create(t, p)
	condition(t, p.Name, upgradev1.ConditionComplete, metav1.ConditionFalse, upgradev1.ReasonWaiting)
	edit(t, p.Name, func(p *upgradev1.Plan) { p.Spec.Concurrency = 1 })
	complete(t, p.Name)
}

func TestPlanNodeWithAnotherHostname(t *testing.T) {
	t.Parallel()
	names := takeSimulated(t, 2)
	for i, name := range names {
		patchNode(t, name, map[string]any{"metadata": map[string]any{"labels": map[string]any{corev1.LabelHostname: fmt.Sprintf("host-%d.example", i)}}})
		t.Cleanup(func() {
			patchNode(t, name, map[string]any{"metadata": map[string]any{"labels": map[string]any{corev1.LabelHostname: name}}})
		})
	}
	p := newPlan(t, "hostname", "true")
	p.Spec.Upgrade.Image = "example.com/image"
	simulate(p, "hang")
	create(t, p)
	status(t, p.Name, "applying by hostname", func(s *upgradev1.PlanStatus) bool {
		return slices.Equal(s.Applying, []string{"host-0.example", "host-1.example"})
	})
	edit(t, p.Name, func(p *upgradev1.Plan) { p.Annotations = nil })
	complete(t, p.Name)
}

func TestPlanImagePullFailureIsTold(t *testing.T) {
	t.Parallel()
	m := takeMachines(t, 1)[0]
	p := newPlan(t, "no-image", "true")
	p.Spec.Upgrade.Image = "moult.dev/nowhere"
	create(t, p)
	status(t, p.Name, "says why it does not start", func(s *upgradev1.PlanStatus) bool {
		return len(s.Updating) == 1 && strings.Contains(s.Updating[0].Message, "ErrImageNeverPull")
	})
	edit(t, p.Name, func(p *upgradev1.Plan) { p.Spec.Upgrade.Image = image.Busybox })
	complete(t, p.Name)
	released(t, m.Name(), false)
}
