// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
)

// canaryByHand has a canary that ends by hand: it is paused, goes on, and is validated, by the annotations that `kubectl eds` writes.
func canaryByHand(t *testing.T, d *daemons) {
	active := d.start(t, d.daemon("agent", canary(0))).Status.ActiveReplicaSet
	d.edit(t, "agent", version("v2"))
	e := d.inCanary(t, "agent", 1)
	tried, node := e.Status.Canary.ReplicaSet, e.Status.Canary.Nodes[0]

	d.annotate(t, e, map[string]any{
		edsv1.AnnotationCanaryPaused: edsv1.True, edsv1.AnnotationCanaryUnpaused: "false", edsv1.AnnotationCanaryPausedReason: "looking",
	})
	e = d.inState(t, "agent", edsv1.StateCanaryPaused)
	if c := edsv1.FindCondition(e.Status.Conditions, edsv1.ConditionCanaryPaused); e.Status.Reason != "looking" || c == nil ||
		c.Status != metav1.ConditionTrue || c.Message != "canary paused with ers: "+tried {
		t.Errorf("paused by hand: %s", statusOf(e))
	}
	if err := d.Delete(t.Context(), d.podOn(t, "agent", node)); err != nil {
		t.Fatal(err)
	}
	// Another revision's name validates nothing.
	d.annotate(t, e, map[string]any{edsv1.AnnotationCanaryValid: active})
	lasts(t, 3*time.Second, "nothing happens while it is paused", func(context.Context) error {
		if e := d.get(t, "agent"); e.Status.State != edsv1.StateCanaryPaused || e.Status.ActiveReplicaSet != active {
			return errors.New(statusOf(e))
		}
		if p := d.podOn(t, "agent", node); p != nil {
			return fmt.Errorf("pod %s was made", p.Name)
		}
		return nil
	})
	d.annotate(t, e, map[string]any{edsv1.AnnotationCanaryPaused: "false", edsv1.AnnotationCanaryUnpaused: edsv1.True})
	e = d.inCanary(t, "agent", 1)
	if edsv1.IsConditionTrue(e.Status.Conditions, edsv1.ConditionCanaryPaused) || e.Status.Reason != "" {
		t.Errorf("it goes on: %s", statusOf(e))
	}
	d.annotate(t, e, map[string]any{edsv1.AnnotationCanaryValid: tried})
	e = d.settled(t, "agent")
	if e.Status.ActiveReplicaSet != tried {
		t.Errorf("%s is active, want %s", e.Status.ActiveReplicaSet, tried)
	}
	eventually(t, "the annotations of the canary that is over are gone", func(context.Context) (string, bool) {
		have := d.get(t, "agent").Annotations
		for _, key := range []string{edsv1.AnnotationCanaryPaused, edsv1.AnnotationCanaryUnpaused, edsv1.AnnotationCanaryPausedReason} {
			if _, ok := have[key]; ok {
				return fmt.Sprint(have), false
			}
		}
		return "", true
	})

	// Validation overrides the pause.
	d.edit(t, "agent", version("v3"))
	e = d.inCanary(t, "agent", 1)
	d.annotate(t, e, map[string]any{edsv1.AnnotationCanaryPaused: edsv1.True, edsv1.AnnotationCanaryUnpaused: "false"})
	e = d.inState(t, "agent", edsv1.StateCanaryPaused)
	if e.Status.Reason != edsv1.StatusReasonUnknown {
		t.Errorf("paused without a reason: %s", statusOf(e))
	}
	d.annotate(t, e, map[string]any{edsv1.AnnotationCanaryValid: e.Status.Canary.ReplicaSet})
	d.settled(t, "agent")
	want := []edsv1.State{
		edsv1.StateRunning, edsv1.StateCanary, edsv1.StateCanaryPaused, edsv1.StateCanary,
		edsv1.StateRunning, edsv1.StateCanary, edsv1.StateCanaryPaused, edsv1.StateRunning,
	}
	if seen := states(d.history(t), "agent"); !slices.Equal(seen, want) {
		t.Errorf("states are %q, want %q", seen, want)
	}
	d.onePerNode(t, "agent")
}

// canaryFailedByHand has a canary that somebody fails: it is given up, and tried again when it is reset.
func canaryFailedByHand(t *testing.T, d *daemons) {
	active := d.start(t, d.daemon("agent", canary(0))).Status.ActiveReplicaSet
	d.edit(t, "agent", version("v2"))
	tried := d.inCanary(t, "agent", 1).Status.Canary.ReplicaSet
	d.mark(t, tried, metav1.ConditionTrue, edsv1.ReasonManuallyFailed)
	e := d.hasFailed(t, "agent", active)
	if failedRevision(t, d, e) != tried {
		t.Errorf("%s has failed, and %s was tried", failedRevision(t, d, e), tried)
	}
	want := []edsv1.State{edsv1.StateRunning, edsv1.StateCanary, edsv1.StateCanaryFailed, edsv1.StateRunning}
	if seen := states(d.history(t), "agent"); !slices.Equal(seen, want) {
		t.Errorf("states are %q, want %q", seen, want)
	}
	d.mark(t, tried, metav1.ConditionFalse, edsv1.ReasonReset)
	e = d.inCanary(t, "agent", 1)
	if e.Status.Canary.ReplicaSet != tried || edsv1.IsConditionTrue(e.Status.Conditions, edsv1.ConditionCanaryFailed) {
		t.Errorf("after the reset: %s", statusOf(e))
	}
	// Back to the template that runs: there is nothing to try any more.
	d.edit(t, "agent", version("v1"))
	if e := d.settled(t, "agent"); e.Status.ActiveReplicaSet != active || edsv1.IsConditionTrue(e.Status.Conditions, edsv1.ConditionStalled) {
		t.Errorf("back to %s: %s", active, statusOf(e))
	}
	d.neverActive(t, "agent", tried)
	d.onePerNode(t, "agent")
}

// pausedAndFrozen has a paused rolling update, which replaces nothing, and still makes pods where there is none; a frozen one makes none either.
func pausedAndFrozen(t *testing.T, d *daemons) {
	d.start(t, d.daemon("agent"))
	agent := d.get(t, "agent")
	node := d.nodes[1]

	d.annotate(t, agent, map[string]any{edsv1.AnnotationRollingUpdatePaused: edsv1.True})
	d.inState(t, "agent", edsv1.StateRollingUpdatePaused)
	before := d.uids(t, "agent")
	d.edit(t, "agent", version("v2"))
	unchanged := func(context.Context) error {
		for name, uid := range d.uids(t, "agent") {
			if name != node && before[name] != uid {
				return fmt.Errorf("%w on %s", errReplaced, name)
			}
		}
		return nil
	}
	lasts(t, 2*time.Second, "nothing is replaced", unchanged)
	if err := d.Delete(t.Context(), d.podOn(t, "agent", node)); err != nil {
		t.Fatal(err)
	}
	e := d.until(t, "agent", "has made one", func(e *edsv1.ExtendedDaemonSet) bool { return e.Status.UpToDate == 1 && e.Status.Available == 3 })
	if e.Status.State != edsv1.StateRollingUpdatePaused || versionOf(d.podOn(t, "agent", node)) != "v2" {
		t.Errorf("%s: %s", versionOf(d.podOn(t, "agent", node)), statusOf(e))
	}
	lasts(t, 2*time.Second, "nothing else is replaced", unchanged)
	d.annotate(t, agent, map[string]any{edsv1.AnnotationRollingUpdatePaused: nil})
	d.settled(t, "agent")

	d.annotate(t, agent, map[string]any{edsv1.AnnotationRolloutFrozen: edsv1.True, edsv1.AnnotationRollingUpdatePaused: edsv1.True})
	d.inState(t, "agent", edsv1.StateRolloutFrozen)
	before = d.uids(t, "agent")
	d.edit(t, "agent", version("v3"))
	if err := d.Delete(t.Context(), d.podOn(t, "agent", node)); err != nil {
		t.Fatal(err)
	}
	lasts(t, 3*time.Second, "no pod is made", func(ctx context.Context) error {
		if p := d.podOn(t, "agent", node); p != nil && p.UID != before[node] {
			return fmt.Errorf("pod %s was made", p.Name)
		}
		return unchanged(ctx)
	})
	d.annotate(t, agent, map[string]any{edsv1.AnnotationRolloutFrozen: nil, edsv1.AnnotationRollingUpdatePaused: nil})
	d.settled(t, "agent")

	d.edit(t, "agent", func(e *edsv1.ExtendedDaemonSet) { e.Spec.Strategy.Paused = true }, version("v4"))
	before = d.uids(t, "agent")
	d.inState(t, "agent", edsv1.StateRollingUpdatePaused)
	lasts(t, 2*time.Second, "nothing is replaced", unchanged)
	d.edit(t, "agent", func(e *edsv1.ExtendedDaemonSet) { e.Spec.Strategy.Paused = false })
	d.settled(t, "agent")
	d.onePerNode(t, "agent")
}
