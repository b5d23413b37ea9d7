// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/api/v1alpha1"
)

// A template that ran before, and whose revision is still kept, is tried like any other: neither its age, nor that somebody has
// validated or approved it then, spares it the canary.
func TestDaemonsTryATemplateAgain(t *testing.T) {
	t.Parallel()
	d := simulatedDaemons(t, "again", 3)
	first := d.start(t, d.daemon("agent", canary(0))).Status.ActiveReplicaSet
	validate := func(e *edsv1.ExtendedDaemonSet) {
		t.Helper()
		d.annotate(t, e, map[string]any{edsv1.AnnotationCanaryValid: e.Status.Canary.ReplicaSet})
	}
	approve := func(*edsv1.ExtendedDaemonSet) {
		t.Helper()
		e := d.until(t, "agent", "waits for approval", func(e *edsv1.ExtendedDaemonSet) bool { return e.Status.Wave != nil && e.Status.Wave.ApproveWith != "" })
		d.annotate(t, e, map[string]any{v1alpha1.AnnotationApprove: e.Status.Wave.ApproveWith})
	}
	second := ""
	for i, step := range []struct {
		version string
		pass    func(*edsv1.ExtendedDaemonSet)
	}{
		{"v2", validate}, {"v1", approve}, {"v2", approve}, {"v1", validate}, {"v2", validate},
	} {
		d.edit(t, "agent", version(step.version))
		e := d.inCanary(t, "agent", 1)
		want := first
		if step.version == "v2" {
			if i == 0 {
				second = e.Status.Canary.ReplicaSet
			}
			want = second
		}
		if e.Status.Canary.ReplicaSet != want {
			t.Fatalf("step %d: %s is tried, want %s", i, e.Status.Canary.ReplicaSet, want)
		}
		before := e.Status.ActiveReplicaSet
		lasts(t, 2*time.Second, "it is only tried", func(context.Context) error {
			if e := d.get(t, "agent"); e.Status.State != edsv1.StateCanary || e.Status.ActiveReplicaSet != before {
				return errors.New(statusOf(e))
			}
			return nil
		})
		step.pass(e)
		d.settled(t, "agent")
		eventually(t, "what was said for the canary is spent", func(context.Context) (string, bool) {
			have := d.get(t, "agent").Annotations
			return fmt.Sprint(have), have[edsv1.AnnotationCanaryValid] == "" && have[v1alpha1.AnnotationApprove] == ""
		})
	}
	d.onePerNode(t, "agent")
}

// A template that has failed, and comes back after another one, has still failed: it is not tried before somebody resets it.
func TestDaemonsFailedTemplateComesBack(t *testing.T) {
	t.Parallel()
	d := simulatedDaemons(t, "comesback", 3)
	active := d.start(t, d.daemon("agent", canary(2*time.Second))).Status.ActiveReplicaSet
	d.edit(t, "agent", version("v2"), canary(0))
	failed := d.inCanary(t, "agent", 1).Status.Canary.ReplicaSet
	d.mark(t, failed, metav1.ConditionTrue, edsv1.ReasonManuallyFailed)
	d.hasFailed(t, "agent", active)

	d.edit(t, "agent", version("v3"), canary(time.Second))
	third := d.settled(t, "agent").Status.ActiveReplicaSet
	if e := d.get(t, "agent"); edsv1.IsConditionTrue(e.Status.Conditions, edsv1.ConditionCanaryFailed) || edsv1.IsConditionTrue(e.Status.Conditions, edsv1.ConditionStalled) {
		t.Errorf("another template runs: %s", statusOf(e))
	}
	before := d.uids(t, "agent")
	d.edit(t, "agent", version("v2"))
	e := d.hasFailed(t, "agent", third)
	want := "canary failed with ers: " + failed + ": " + edsv1.ReasonManuallyFailed
	if c := edsv1.FindCondition(e.Status.Conditions, edsv1.ConditionCanaryFailed); c.Message != want {
		t.Errorf("it says %q, want %q", c.Message, want)
	}
	lasts(t, 3*time.Second, "it is not tried", func(context.Context) error {
		for node, uid := range d.uids(t, "agent") {
			if before[node] != uid {
				return fmt.Errorf("%w on %s", errReplaced, node)
			}
		}
		return nil
	})
	d.mark(t, failed, metav1.ConditionFalse, edsv1.ReasonReset)
	if now := d.settled(t, "agent").Status.ActiveReplicaSet; now != failed {
		t.Errorf("after the reset %s is active, want %s", now, failed)
	}
	d.onePerNode(t, "agent")
}

// What a canary has left that failed goes at once: neither the waves of the rolling update, nor its windows, nor budgets keep a node
// with a broken pod, as they have not kept it from the canary.
func TestDaemonsFailedCanaryWaitsForNobody(t *testing.T) {
	t.Parallel()
	d := simulatedDaemons(t, "waitsfor", 4)
	b := newBudget(t, "eds-waits-for")
	b.Spec.Paused = true
	createBudget(t, b)
	active := d.start(t, d.daemon("agent", canary(0), func(e *edsv1.ExtendedDaemonSet) {
		s := &e.Spec.Strategy
		s.Waves = []v1alpha1.Wave{{Name: "first", Size: ptr.To(intstr.FromInt32(1)), Soak: &metav1.Duration{Duration: time.Hour}, Approval: v1alpha1.ApprovalManual}}
		at := time.Now().UTC().Add(12 * time.Hour)
		s.Windows = []v1alpha1.Window{{Schedule: fmt.Sprintf("0 %d * * *", at.Hour()), Duration: metav1.Duration{Duration: time.Hour}}}
	})).Status.ActiveReplicaSet
	broken := func(e *edsv1.ExtendedDaemonSet) {
		e.Spec.Template.Annotations = map[string]string{"test.moult.dev/unready": "true"}
	}
	d.edit(t, "agent", version("v2"), broken)
	e := d.until(t, "agent", "has a canary pod", func(e *edsv1.ExtendedDaemonSet) bool {
		return e.Status.Canary != nil && len(e.Status.Canary.Nodes) == 1 && e.Status.UpToDate == 1 && e.Status.Available == 3
	})
	d.mark(t, e.Status.Canary.ReplicaSet, metav1.ConditionTrue, edsv1.ReasonManuallyFailed)
	d.hasFailed(t, "agent", active)

	// A template that is taken back in the middle leaves nothing, either.
	d.edit(t, "agent", version("v3"), broken)
	d.until(t, "agent", "has another canary pod", func(e *edsv1.ExtendedDaemonSet) bool {
		return e.Status.Canary != nil && e.Status.UpToDate == 1 && e.Status.Available == 3
	})
	d.edit(t, "agent", version("v1"), func(e *edsv1.ExtendedDaemonSet) { e.Spec.Template.Annotations = nil })
	if now := d.settled(t, "agent").Status.ActiveReplicaSet; now != active {
		t.Errorf("%s is active, want %s", now, active)
	}
	d.onePerNode(t, "agent")
}

// What was said for a canary ends with it, also when it fails: the next one is neither paused, nor bears what the other was to bear.
func TestDaemonsPauseEndsWithTheCanary(t *testing.T) {
	t.Parallel()
	d := simulatedDaemons(t, "pauseends", 3)
	active := d.start(t, d.daemon("agent", canary(2*time.Second))).Status.ActiveReplicaSet
	for i, say := range []map[string]any{
		{edsv1.AnnotationCanaryPaused: edsv1.True, edsv1.AnnotationCanaryUnpaused: "false", edsv1.AnnotationCanaryPausedReason: "lunch"},
		{edsv1.AnnotationCanaryPaused: "false", edsv1.AnnotationCanaryUnpaused: edsv1.True},
	} {
		d.edit(t, "agent", version(fmt.Sprintf("bad-%d", i)), canary(0))
		e := d.inCanary(t, "agent", 1)
		d.annotate(t, e, say)
		if say[edsv1.AnnotationCanaryPaused] == edsv1.True {
			d.inState(t, "agent", edsv1.StateCanaryPaused)
		}
		d.mark(t, e.Status.Canary.ReplicaSet, metav1.ConditionTrue, edsv1.ReasonManuallyFailed)
		d.hasFailed(t, "agent", active)
		eventually(t, "nothing is left of it", func(context.Context) (string, bool) {
			have := d.get(t, "agent").Annotations
			for key := range say {
				if _, ok := have[key]; ok {
					return fmt.Sprint(have), false
				}
			}
			return "", true
		})
		d.edit(t, "agent", version(fmt.Sprintf("good-%d", i)), canary(2*time.Second))
		active = d.settled(t, "agent").Status.ActiveReplicaSet
	}
	d.onePerNode(t, "agent")
}
