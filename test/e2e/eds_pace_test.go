// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/api/v1alpha1"
)

// TestDaemonsPace replaces as many pods at once as the strategy allows, and no more.
func TestDaemonsPace(t *testing.T) {
	t.Parallel()
	type rolling = edsv1.ExtendedDaemonSetSpecStrategyRollingUpdate
	for name, tc := range map[string]struct {
		strategy     func(*rolling)
		down, double int
	}{
		"unavailable": {func(r *rolling) { r.MaxUnavailable = ptr.To(intstr.FromString("30%")) }, 2, 0}, // Of 6, rounded up.
		"surge":       {func(r *rolling) { r.MaxSurge = ptr.To(intstr.FromInt32(2)) }, 0, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDaemons(t, name, 6)
			d.start(t, func(e *edsv1.ExtendedDaemonSet) { tc.strategy(&e.Spec.Strategy.RollingUpdate) })
			since := d.now(t)
			d.edit(t, version("v2"), behave("start-seconds", "1"))
			d.settled(t)
			d.disrupted(t, since, tc.down, tc.double)
		})
	}
}

// TestDaemonsUnderABudget replaces nothing while a budget is paused. Missing pods are made.
func TestDaemonsUnderABudget(t *testing.T) {
	t.Parallel()
	d := newDaemons(t, "budget", 3)
	d.start(t)
	b := newBudget(t, "eds-budget")
	b.Spec.Paused = true
	createBudget(t, b)
	before := d.uids(t)
	d.edit(t, version("v2"))
	waiting := func(what string, n int32) {
		t.Helper()
		d.until(t, what, func(e *edsv1.ExtendedDaemonSet) bool {
			s := e.Status
			return int32(len(s.Waiting)) == n && s.Waiting[0].Reason == v1alpha1.ReasonBudgetPaused && s.UpToDate == 3-n && s.Available == 3
		})
	}
	waiting("all nodes wait", 3)
	d.deletePod(t, d.nodes[1])
	waiting("the missing pod is made", 2)
	d.unchanged(t, before, d.nodes[0], d.nodes[2])
	resume(t, b)
	d.settled(t)
}

func resume(t *testing.T, b *v1alpha1.NodeDisruptionBudget) {
	t.Helper()
	eventually(t, "the budget is resumed", func(ctx context.Context) (string, bool) {
		err := world.Get(ctx, client.ObjectKeyFromObject(b), b)
		if b.Spec.Paused = false; err == nil {
			err = world.Update(ctx, b)
		}
		return fmt.Sprint(err), err == nil
	})
}

// TestDaemonsCanaryUnderABudget starts no canary while a budget is paused, and says so.
func TestDaemonsCanaryUnderABudget(t *testing.T) {
	t.Parallel()
	d := newDaemons(t, "held", 2)
	d.start(t, canary)
	b := newBudget(t, "eds-held")
	b.Spec.Paused = true
	createBudget(t, b)
	before := d.uids(t)
	d.edit(t, version("v2"))
	d.until(t, "the canary waits", func(e *edsv1.ExtendedDaemonSet) bool {
		c := e.Status.Canary
		return c != nil && slices.ContainsFunc(e.Status.Waiting, func(u v1alpha1.UnitStatus) bool {
			return u.Node == c.Nodes[0] && u.Reason == v1alpha1.ReasonBudgetPaused
		})
	})
	d.unchanged(t, before, d.nodes...)
	resume(t, b)
	d.inCanary(t, 1)
	d.eds(t, "canary", "validate", agent)
	d.settled(t)
}

// TestDaemonsThatCannotBeCarriedOut have a condition and an Event that name the field. They go on when the field is corrected.
func TestDaemonsThatCannotBeCarriedOut(t *testing.T) {
	t.Parallel()
	d := newDaemons(t, "invalid", 2)
	affinity := func(names ...string) func(*edsv1.ExtendedDaemonSet) {
		return func(e *edsv1.ExtendedDaemonSet) {
			e.Spec.Template.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{
					{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpNotIn, Values: names},
				}}},
			}}}
		}
	}
	stalled := func() {
		t.Helper()
		e := d.until(t, "is stalled", func(e *edsv1.ExtendedDaemonSet) bool {
			return edsv1.IsConditionTrue(e.Status.Conditions, edsv1.ConditionStalled)
		})
		for _, kind := range []string{edsv1.ConditionStalled, edsv1.ConditionReconcileError, edsv1.ConditionReady} {
			if c := edsv1.FindCondition(e.Status.Conditions, kind); c == nil || c.Reason != "InvalidSpec" || !strings.Contains(c.Message, "spec.template.spec.affinity") {
				t.Errorf("%s is %+v", kind, c)
			}
		}
	}
	d.start(t)
	before := d.uids(t)
	d.edit(t, affinity("a", "b"), version("v2"))
	stalled()
	eventually(t, "there is an Event", func(ctx context.Context) (string, bool) {
		list, err := world.clientset.CoreV1().Events(d.namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.kind=ExtendedDaemonSet,reason=Stalled"})
		return fmt.Sprint(list, err), err == nil && len(list.Items) == 1 && strings.Contains(list.Items[0].Message, "spec.template.spec.affinity")
	})
	d.unchanged(t, before, d.nodes...)
	d.edit(t, affinity("a"))
	d.settled(t)
}
