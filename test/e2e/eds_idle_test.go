// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/test/audit"
	"moult.dev/moult/test/operator"
)

// writes are what the operator has written to a test's objects since it was asked last.
func writes(t *testing.T, log *audit.Log, d *daemons) (all []string) {
	t.Helper()
	err := log.Read(`"userAgent":"`+operator.UserAgent, func(e *audit.Event) {
		mine := e.Object.Namespace == d.namespace || e.Object.Resource == "nodes" && slices.Contains(d.nodes, e.Object.Name)
		if mine && slices.Contains([]string{"create", "update", "patch", "delete", "deletecollection"}, e.Verb) {
			all = append(all, fmt.Sprintf("%s %s %s", e.Verb, e.Resource(), e.Object.Name))
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// Nothing is written as long as nothing happens, whatever an ExtendedDaemonSet waits for.
func TestDaemonsIdle(t *testing.T) {
	t.Parallel()
	d := simulatedDaemons(t, "idle", 3)
	log, err := audit.Open(world.AuditLog())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() })
	running := []string{"running", "byhand", "paused", "failed", "frozen", "ondelete"}
	for _, name := range running {
		d.create(t, d.daemon(name, func(e *edsv1.ExtendedDaemonSet) {
			switch name {
			case "frozen":
			case "ondelete":
				e.Spec.Strategy.Type = edsv1.StrategyOnDelete
			default:
				canary(0)(e)
			}
		}))
	}
	for _, name := range running {
		d.settled(t, name)
	}
	for _, name := range running[1:] {
		d.edit(t, name, version("v2"), func(e *edsv1.ExtendedDaemonSet) {
			if name == "frozen" {
				e.Annotations = map[string]string{edsv1.AnnotationRolloutFrozen: edsv1.True}
			}
		})
	}
	d.inCanary(t, "byhand", 1)
	e := d.inCanary(t, "paused", 1)
	d.annotate(t, e, map[string]any{edsv1.AnnotationCanaryPaused: edsv1.True, edsv1.AnnotationCanaryUnpaused: "false"})
	d.inState(t, "paused", edsv1.StateCanaryPaused)
	e = d.inCanary(t, "failed", 1)
	d.mark(t, e.Status.Canary.ReplicaSet, metav1.ConditionTrue, edsv1.ReasonManuallyFailed)
	d.hasFailed(t, "failed", e.Status.ActiveReplicaSet)
	d.inState(t, "frozen", edsv1.StateRolloutFrozen)
	d.until(t, "ondelete", "waits", func(e *edsv1.ExtendedDaemonSet) bool { return e.Status.UpToDate == 0 })

	began := time.Now()
	last := began
	eventually(t, "nothing is written any more", func(context.Context) (string, bool) {
		seen := writes(t, log, d)
		if len(seen) > 0 {
			last = time.Now()
		}
		return fmt.Sprint(seen), time.Since(last) > 3*time.Second
	})
	lasts(t, time.Minute, "nothing is written", func(context.Context) error {
		if seen := writes(t, log, d); len(seen) > 0 && !d.faltered(t, began) {
			return fmt.Errorf("%s after %s", seen, time.Since(last).Round(time.Second))
		}
		return nil
	})
}
