// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/hack/image"
)

// A budget that is paused, outside of its windows, behind a gate or not to be understood keeps pods from being replaced, with that
// reason, and none from being made. How many nodes it lets be unavailable is no matter of daemons.
func TestDaemonsUnderABudget(t *testing.T) {
	t.Parallel()
	d := simulatedDaemons(t, "budget", 3)
	d.start(t, d.daemon("agent", func(e *edsv1.ExtendedDaemonSet) {
		e.Spec.Strategy.RollingUpdate.MaxUnavailable = ptr.To(intstr.FromInt32(3))
	}))
	b := newBudget(t, "eds-budget")
	createBudget(t, b)
	rules := func(change func(*v1alpha1.NodeDisruptionBudgetSpec)) {
		t.Helper()
		eventually(t, "the budget is changed", func(ctx context.Context) (string, bool) {
			if err := world.Get(ctx, client.ObjectKeyFromObject(b), b); err != nil {
				return err.Error(), false
			}
			b.Spec = newBudget(t, b.Name).Spec
			change(&b.Spec)
			err := world.Update(ctx, b)
			return fmt.Sprint(err), err == nil
		})
	}
	blocker := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "blocker", Namespace: d.namespace, Labels: map[string]string{"e2e": "blocks"}},
		Spec: corev1.PodSpec{
			NodeName: d.nodes[0], TerminationGracePeriodSeconds: ptr.To[int64](0),
			Containers: []corev1.Container{{Name: "c", Image: image.Busybox}},
		},
	}
	d.create(t, blocker)
	far := time.Now().UTC().Add(12 * time.Hour)
	for i, tc := range []struct {
		reason v1alpha1.Reason
		rule   func(*v1alpha1.NodeDisruptionBudgetSpec)
	}{
		{v1alpha1.ReasonBudgetPaused, func(s *v1alpha1.NodeDisruptionBudgetSpec) { s.Paused = true }},
		{v1alpha1.ReasonOutsideBudgetWindow, func(s *v1alpha1.NodeDisruptionBudgetSpec) {
			s.Windows = []v1alpha1.Window{{Schedule: fmt.Sprintf("0 %d * * *", far.Hour()), Duration: metav1.Duration{Duration: time.Hour}}}
		}},
		{v1alpha1.ReasonBudgetInvalid, func(s *v1alpha1.NodeDisruptionBudgetSpec) {
			s.Windows = []v1alpha1.Window{{Schedule: "@daily", Duration: metav1.Duration{Duration: time.Hour}, TimeZone: "Nowhere/At-All"}}
		}},
		{v1alpha1.ReasonPodsBlock, func(s *v1alpha1.NodeDisruptionBudgetSpec) {
			s.Gates = &v1alpha1.Gates{Pods: []v1alpha1.PodsGate{{
				Selector: metav1.LabelSelector{MatchLabels: map[string]string{"e2e": "blocks"}}, Scope: v1alpha1.PodsInCluster,
			}}}
		}},
	} {
		rules(tc.rule)
		before := d.uids(t, "agent")
		v := fmt.Sprintf("v%d", i+2)
		d.edit(t, "agent", version(v))
		waiting := func(e *edsv1.ExtendedDaemonSet, n int) bool {
			s := &e.Status
			return len(s.Waiting) == n && s.Waiting[0].Reason == tc.reason && s.Available == 3 && s.UpToDate == int32(3-n) &&
				!edsv1.IsConditionTrue(s.Conditions, edsv1.ConditionReady)
		}
		d.until(t, "agent", "waits for "+string(tc.reason), func(e *edsv1.ExtendedDaemonSet) bool { return waiting(e, 3) })
		if err := d.Delete(t.Context(), d.podOn(t, "agent", d.nodes[1])); err != nil {
			t.Fatal(err)
		}
		d.until(t, "agent", "has made the pod that was missing", func(e *edsv1.ExtendedDaemonSet) bool { return waiting(e, 2) })
		lasts(t, 2*time.Second, "nothing is replaced", func(context.Context) error {
			for _, node := range []string{d.nodes[0], d.nodes[2]} {
				if uid := d.uids(t, "agent")[node]; uid != before[node] {
					return fmt.Errorf("%w on %s", errReplaced, node)
				}
			}
			return nil
		})
		// One node may be unavailable by the budget, and is: the daemons go on.
		patchNode(t, d.nodes[0], map[string]any{"spec": map[string]any{"unschedulable": true}})
		rules(func(*v1alpha1.NodeDisruptionBudgetSpec) {})
		d.settled(t, "agent")
		patchNode(t, d.nodes[0], map[string]any{"spec": map[string]any{"unschedulable": nil}})
	}
	d.onePerNode(t, "agent")
}

// A rollout that is frozen in the middle of a canary lets that go on, and holds what comes after.
func TestDaemonsFrozenInACanary(t *testing.T) {
	t.Parallel()
	d := simulatedDaemons(t, "frozencanary", 3)
	d.start(t, d.daemon("agent", canary(45*time.Second)))
	d.edit(t, "agent", version("v2"))
	e := d.inCanary(t, "agent", 1)
	tried, node := e.Status.Canary.ReplicaSet, e.Status.Canary.Nodes[0]
	d.annotate(t, e, map[string]any{edsv1.AnnotationRolloutFrozen: edsv1.True})
	if err := d.Delete(t.Context(), d.podOn(t, "agent", node)); err != nil {
		t.Fatal(err)
	}
	other := ""
	for _, n := range d.nodes {
		if n != node {
			other = n
		}
	}
	if err := d.Delete(t.Context(), d.podOn(t, "agent", other)); err != nil {
		t.Fatal(err)
	}
	e = d.inState(t, "agent", edsv1.StateRolloutFrozen)
	if e.Status.ActiveReplicaSet != tried || e.Status.UpToDate != 1 || e.Status.Available != 2 {
		t.Errorf("after the canary: %s", statusOf(e))
	}
	lasts(t, 2*time.Second, "it is frozen", func(context.Context) error {
		if p := d.podOn(t, "agent", other); p != nil {
			return fmt.Errorf("pod %s was made", p.Name)
		}
		return nil
	})
	d.annotate(t, e, map[string]any{edsv1.AnnotationRolloutFrozen: nil})
	d.settled(t, "agent")
	d.onePerNode(t, "agent")
}
