// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/rollout"
)

// lookHeld makes a pass over a world in which a canary goes on, with budgets.
func (w *world) lookHeld(t *testing.T, budgets ...rollout.Budget) *Judge {
	t.Helper()
	j := w.begin(t, func(f *Facts) { f.Fleet.Budgets = budgets })
	j.Canary = &Canary{Wanted: 1}
	j.JudgeCanaryPods()
	j.DecideCanary()
	j.Decide()
	j.Summarize("", nil)
	return j
}

// paused is a paused budget of all nodes, or of these.
func paused(nodes ...string) rollout.Budget {
	b := rollout.Budget{Name: "stop", Paused: true}
	if len(nodes) > 0 {
		selector, _ := metav1.LabelSelectorAsSelector(&metav1.LabelSelector{
			MatchExpressions: []metav1.LabelSelectorRequirement{{Key: corev1.LabelHostname, Operator: metav1.LabelSelectorOpIn, Values: nodes}},
		})
		b.Selector = selector
	}
	return b
}

// A canary starts on no node of a budget that is paused, or whose window or gate is closed.
func TestBudgetsHoldCanary(t *testing.T) {
	night := rollout.NewBudget(&v1alpha1.NodeDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "nights"},
		Spec:       v1alpha1.NodeDisruptionBudgetSpec{Windows: []v1alpha1.Window{{Schedule: "0 22 * * *", Duration: metav1.Duration{Duration: time.Hour}}}},
	})
	gate := rollout.Budget{Name: "gate", Blocks: []rollout.Block{{Gate: v1alpha1.ReasonAlertsActive, Message: "1 alert is active: A"}}}
	none := rollout.Budget{Name: "few", MaxUnavailable: &rollout.Amount{}, Selector: labels.Everything()}
	counting := none
	counting.DaemonPods = true
	surge := func(w *world) *world {
		w.eds.Spec.Strategy.RollingUpdate.MaxUnavailable, w.eds.Spec.Strategy.RollingUpdate.MaxSurge = nil, ptr.To(intstr.FromInt32(1))
		return w
	}
	stopped := func(w *world) *world {
		w.eds.Spec.Strategy.Paused = true
		return w
	}
	old := func() *world { return newWorld(3).trying().has("old", nil, 0, 1, 2) }
	for name, tc := range map[string]struct {
		world  *world
		budget rollout.Budget
		want   string
		reason v1alpha1.Reason
	}{
		"a paused budget":                        {old(), paused(), "", v1alpha1.ReasonBudgetPaused},
		"a closed window":                        {old(), night, "", v1alpha1.ReasonOutsideBudgetWindow},
		"a closed gate":                          {old(), gate, "", v1alpha1.ReasonAlertsActive},
		"an invalid budget":                      {old(), rollout.Budget{Name: "b", Error: "bad"}, "", v1alpha1.ReasonBudgetInvalid},
		"also with surge":                        {surge(old()), paused(), "", v1alpha1.ReasonBudgetPaused},
		"also where a DaemonSet keeps its pod":   {newWorld(1).trying().has("old", nil, 0).keeps(), paused(), "", v1alpha1.ReasonBudgetPaused},
		"its own pause":                          {stopped(old()), rollout.Budget{}, "", v1alpha1.ReasonPaused},
		"not a budget of other nodes":            {old(), paused("n1", "n2"), "replace n0/old", ""},
		"not a number":                           {old(), none, "replace n0/old", ""},
		"but the number of one that counts pods": {old(), counting, "", v1alpha1.ReasonBudgetExhausted},
		"a canary that runs is not undone":       {newWorld(2).trying().has("new", starting, 0).has("old", nil, 1), paused(), "", ""},
		"one that has begun gets its pod":        {newWorld(2).trying().has("old", nil, 1), paused(), "create n0", ""},
		"other nodes of the canary start":        {old().on("n0", "n1"), paused("n0"), "replace n1/old", v1alpha1.ReasonBudgetPaused},
	} {
		t.Run(name, func(t *testing.T) {
			j := tc.world.lookHeld(t, tc.budget)
			var reason v1alpha1.Reason
			for _, u := range j.EDS.Status.Waiting {
				if u.Node == "n0" {
					reason = u.Reason
				}
			}
			if got := j.show(); got != tc.want || reason != tc.reason {
				t.Errorf("got %q, n0 waits for %q; want %q, %q", got, reason, tc.want, tc.reason)
			}
			if c := edsv1.FindCondition(j.ReplicaSetStatus(j.Target).Conditions, edsv1.ConditionCanary); c == nil || c.Reason != string(tc.reason) {
				t.Errorf("the condition Canary is %+v", c)
			}
		})
	}
}

// A canary that is held for longer than canaryTimeout does not fail by that.
func TestHeldCanaryDoesNotTimeOut(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		update time.Duration // since when the hold began, or ended
		want   bool
	}{
		"while it is held":              {"BudgetPaused", 50 * time.Minute, false},
		"just after it was":             {"", time.Minute, false},
		"when it takes long after that": {"", 30 * time.Minute, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(2).trying().has("new", unready, 0).has("old", nil, 1)
			w.eds.Spec.Strategy.Canary.AutoFail = &edsv1.ExtendedDaemonSetSpecStrategyCanaryAutoFail{CanaryTimeout: &metav1.Duration{Duration: 20 * time.Minute}}
			w.sets[1].Status.Conditions = []edsv1.Condition{{
				Type: edsv1.ConditionCanary, Status: metav1.ConditionTrue, Reason: tc.reason, LastTransitionTime: ago(time.Hour), LastUpdateTime: ago(tc.update),
			}}
			if v := w.lookHeld(t).Canary.Verdict; v.Failed != tc.want {
				t.Errorf("failed is %v: %+v", v.Failed, v)
			}
		})
	}
}

// Nodes that no budget holds are picked first, and a held node without a pod never: its pod would be made at once.
func TestPickHeld(t *testing.T) {
	for name, tc := range map[string]struct {
		world   *world
		budgets []rollout.Budget
		want    []string
	}{
		"no budget":                  {newWorld(3).has("old", nil, 0, 1, 2), nil, []string{"n0"}},
		"another node":               {newWorld(3).has("old", nil, 0, 1, 2), []rollout.Budget{paused("n0", "n1")}, []string{"n2"}},
		"all are held":               {newWorld(3).has("old", nil, 0, 1, 2), []rollout.Budget{paused()}, []string{"n0"}},
		"one of these is without":    {newWorld(3).has("old", nil, 1, 2), []rollout.Budget{paused()}, []string{"n1"}},
		"all are held, without pods": {newWorld(3), []rollout.Budget{paused()}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			j := tc.world.trying().on().begin(t, func(f *Facts) { f.Fleet.Budgets = tc.budgets })
			if got := j.StartCanary(); !slices.Equal(got, tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

// Which nodes count as having a pod replaced.
func TestReplaced(t *testing.T) {
	w := newWorld(8).has("new", nil, 0).has("old", going, 1).has("new", starting, 2).has("new", unready, 3).has("new", unreadyLater, 4).
		has("old", nil, 5).has("new", starting, 6).down(6)
	j := w.begin(t)
	want := map[string]time.Time{"n1": DeletedAt(w.pods[1]), "n2": ago(2 * time.Second).Time, "n3": ago(30 * time.Minute).Time}
	check := func() {
		t.Helper()
		got := j.Replaced()
		for node, since := range want {
			if !got[node].Equal(since) {
				t.Errorf("%s since %s, want %s", node, got[node], since)
			}
		}
		if len(got) != len(want) {
			t.Errorf("got %v", got)
		}
	}
	check()
	j.Decide() // Another slot is not free, and the empty node gets a pod.
	want["n7"] = now
	check()
}
