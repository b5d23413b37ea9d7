// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/rollout"
)

func fleetOf(n int, options ...func(*corev1.Node)) []corev1.Node {
	var all []corev1.Node
	for i := range n {
		all = append(all, aNode(fmt.Sprintf("n%02d", i), options...))
	}
	return all
}

func concurrency(n int64) func(*upgradev1.Plan) {
	return func(p *upgradev1.Plan) { p.Spec.Concurrency = n }
}

// measured is a Plan whose turns take a minute.
func measured(options ...func(*upgradev1.Plan)) upgradev1.Plan {
	return aPlan(append([]func(*upgradev1.Plan){func(p *upgradev1.Plan) { p.Status.TurnSeconds = 60 }}, options...)...)
}

func waves(of ...v1alpha1.Wave) func(*upgradev1.Plan) {
	return strategic(func(s *v1alpha1.Strategy) { s.Waves = of })
}

func size(n int) *intstr.IntOrString { return ptr.To(intstr.FromInt(n)) }

// TestSchedule: a turn takes a minute.
func TestSchedule(t *testing.T) {
	failed := own()
	failed.Failed = &v1alpha1.ClaimFailure{Reason: v1alpha1.ReasonJobFailed, Message: "it broke", Time: *at(minute)}
	begun := own()
	begun.Since = *at(now.Add(-40 * time.Second))
	soaking := begun
	soaking.Soaking = at(now.Add(-10 * time.Second))
	other := v1alpha1.Claim{Rollout: "Plan/system-upgrade/other", UID: "other", Since: *at(minute)}
	retries := []string{"failed nodes"}
	p := measured()
	if v := See(nil, attempted(&p, aNode("a", labelled(hash)), aNode("x", claimed(failed))), nil, now).Preview(&p, Supposition{}); v.Schedule != nil {
		t.Errorf("nothing is left but a failed node, and it ends: %+v", v.Schedule)
	}
	for name, tc := range map[string]struct {
		plan    upgradev1.Plan
		nodes   []corev1.Node
		budgets []v1alpha1.NodeDisruptionBudget
		want    time.Duration // until the end; 0: it is stuck
		left    int
		stuck   v1alpha1.Reason
		without []string
	}{
		"one after the other":      {plan: measured(concurrency(1)), nodes: fleetOf(5), want: 5 * time.Minute},
		"two at a time":            {plan: measured(concurrency(2)), nodes: fleetOf(5), want: 3 * time.Minute},
		"what is updated is done":  {plan: measured(concurrency(1)), nodes: append(fleetOf(3, labelled(hash)), aNode("x")), want: time.Minute},
		"what is under way counts": {plan: measured(concurrency(1)), nodes: []corev1.Node{aNode("a"), aNode("b", claimed(begun))}, want: 80 * time.Second},
		"what soaks counts":        {plan: measured(concurrency(1)), nodes: []corev1.Node{aNode("a"), aNode("b", claimed(soaking))}, want: 80 * time.Second},
		"a budget is tighter":      {plan: measured(concurrency(5)), nodes: fleetOf(6), budgets: []v1alpha1.NodeDisruptionBudget{aBudget(atMost(3))}, want: 2 * time.Minute},
		"what reboots serves again": {
			plan: measured(concurrency(1)), nodes: []corev1.Node{aNode("a"), aNode("b", claimed(begun), unready)}, budgets: []v1alpha1.NodeDisruptionBudget{aBudget(atMost(1))},
			want: 80 * time.Second,
		},
		"another rollout has one":   {plan: measured(concurrency(5)), nodes: []corev1.Node{aNode("a"), aNode("b", claimed(other))}, want: 2 * time.Minute},
		"a wave and then the rest":  {plan: measured(concurrency(9), waves(v1alpha1.Wave{Name: "canary", Size: size(1)})), nodes: fleetOf(5), want: 2 * time.Minute},
		"a wave that soaks an hour": {plan: measured(concurrency(9), waves(v1alpha1.Wave{Size: size(1), Soak: &metav1.Duration{Duration: time.Hour}})), nodes: fleetOf(5), want: 62 * time.Minute},
		"a wave that is approved": {
			plan: measured(concurrency(9), waves(v1alpha1.Wave{Name: "canary", Size: size(1), Approval: v1alpha1.ApprovalManual})), nodes: fleetOf(5),
			want: 2 * time.Minute, without: []string{"the time until wave canary is approved"},
		},
		"a window at night": {
			plan: measured(concurrency(1), strategic(func(s *v1alpha1.Strategy) {
				s.Windows = []v1alpha1.Window{{Schedule: "0 22 * * *", Duration: metav1.Duration{Duration: 2 * time.Minute}}}
			})),
			nodes: fleetOf(3), want: 34*time.Hour + time.Minute,
		},
		"a window that closes before the last turn ends": {
			plan: measured(concurrency(1), strategic(func(s *v1alpha1.Strategy) {
				s.Windows = []v1alpha1.Window{{Schedule: "0 22 * * *", Duration: metav1.Duration{Duration: time.Minute}}}
			})),
			nodes: fleetOf(1), want: 10*time.Hour + time.Minute,
		},
		"paused": {
			plan: measured(concurrency(1), strategic(paused)), nodes: fleetOf(2),
			want: 2 * time.Minute, without: []string{"the time until it is resumed"},
		},
		"a closed gate": {
			plan: measured(concurrency(1)), nodes: fleetOf(2), budgets: []v1alpha1.NodeDisruptionBudget{aBudget(closedBy(v1alpha1.ReasonAlertsActive, "x"))},
			want: 2 * time.Minute, without: []string{"the time until budget all opens (AlertsActive)"},
		},
		"none at a time": {
			plan: measured(concurrency(0)), nodes: fleetOf(2), left: 2, stuck: v1alpha1.ReasonMaxConcurrent,
		},
		"a failure keeps the only slot": {
			plan: measured(concurrency(1)), nodes: append(fleetOf(2), aNode("x", claimed(failed))),
			left: 2, stuck: v1alpha1.ReasonMaxConcurrent, without: retries,
		},
		"halted": {
			plan:  measured(concurrency(1), strategic(func(s *v1alpha1.Strategy) { s.MaxFailures = size(0) })),
			nodes: append(fleetOf(2), aNode("x", claimed(failed))),
			left:  2, stuck: v1alpha1.ReasonHalted, without: retries,
		},
		"a node that is not ready uses up the budget": {
			plan: measured(concurrency(1)), nodes: append(fleetOf(1), aNode("x", unready, labelled(hash))), budgets: []v1alpha1.NodeDisruptionBudget{aBudget(atMost(1))},
			left: 1, stuck: v1alpha1.ReasonBudgetExhausted,
		},
	} {
		t.Run(name, func(t *testing.T) {
			v := See(nil, attempted(&tc.plan, tc.nodes...), tc.budgets, now).Preview(&tc.plan, Supposition{})
			s := v.Schedule
			if s == nil {
				t.Fatal("there is no schedule")
			}
			var got time.Duration
			if s.End != nil {
				got = s.End.Sub(now)
			}
			reason, _, _ := strings.Cut(s.Stuck, ":")
			if got != tc.want || reason != string(tc.stuck) || s.Left != tc.left {
				t.Errorf("%s (%d left: %q), want %s (%d left: %q)", got, s.Left, s.Stuck, tc.want, tc.left, tc.stuck)
			}
			if diff := cmp.Diff(tc.without, s.Without); diff != "" {
				t.Errorf("without (-want +got):\n%s", diff)
			}
		})
	}
}

// TestScheduleOfManyNodes is extrapolated, and takes no long time.
func TestScheduleOfManyNodes(t *testing.T) {
	p := measured(concurrency(1))
	s := See(nil, fleetOf(3000), nil, now).Preview(&p, Supposition{}).Schedule
	if s.End == nil || s.End.Sub(now) != 3000*time.Minute || len(s.Without) != 1 {
		t.Errorf("%+v", s)
	}
}

func TestPreviewSteps(t *testing.T) {
	p := measured(concurrency(1), waves(v1alpha1.Wave{Name: "canary", NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelHostname: "c"}}}))
	v := See(nil, []corev1.Node{aNode("a"), aNode("c"), aNode("z", labelled(hash))}, nil, now).Preview(&p, Supposition{})
	slices.SortFunc(v.Steps, func(a, b Step) int { return strings.Compare(a.Node, b.Node) })
	want := []Step{
		{Step: rollout.Step{Node: "a", Wave: "remainder", Reason: v1alpha1.ReasonWavePending}, At: at(now.Add(time.Minute))},
		{Step: rollout.Step{Node: "c", Wave: "canary"}, At: at(now)},
	}
	for i := range v.Steps {
		v.Steps[i].Message = "" // It is the engine's.
	}
	if diff := cmp.Diff(want, v.Steps); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestPreviewOfWhatIsNotThere(t *testing.T) {
	p := upgradev1.Plan{
		ObjectMeta: metav1.ObjectMeta{Namespace: "system-upgrade", Name: "agents"},
		Spec: upgradev1.PlanSpec{
			Concurrency: 1, NodeSelector: &metav1.LabelSelector{}, Version: "v2", Upgrade: &upgradev1.ContainerSpec{Image: "i"},
		},
	}
	v := See(nil, []corev1.Node{aNode("a"), aNode("b", labelled(hash))}, nil, now).Preview(&p, Supposition{New: true, Unresolved: true})
	if len(v.Steps) != 2 || v.Steps[0].Reason != "" || v.Steps[1].Reason != v1alpha1.ReasonMaxConcurrent || v.Schedule != nil || len(v.Notes) != 2 {
		t.Errorf("%+v", v)
	}
	if v := See(nil, fleetOf(2), nil, now).Preview(&p, Supposition{New: true, Turn: time.Minute}); v.Schedule == nil {
		t.Error("a turn is supposed, and there is no schedule")
	}
}

// TestPreviewOfAnotherRevision: what has it already, fails or is in a turn begins anew.
func TestPreviewOfAnotherRevision(t *testing.T) {
	failed := own()
	failed.Failed = &v1alpha1.ClaimFailure{Reason: v1alpha1.ReasonJobFailed, Time: *at(minute)}
	p := measured(concurrency(9))
	nodes := []corev1.Node{aNode("a", labelled(hash)), aNode("b", claimed(own())), aNode("c", claimed(failed)), aNode("d")}
	v := See(nil, attempted(&p, nodes...), nil, now).Preview(&p, Supposition{Unresolved: true})
	if len(v.Steps) != 4 {
		t.Errorf("%+v", v.Steps)
	}
	for _, s := range v.Steps {
		if s.Reason != "" {
			t.Errorf("%+v", s)
		}
	}
	if p.Status.LatestHash != hash {
		t.Error("the Plan was changed")
	}
}

func TestPreviewProblems(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*upgradev1.Plan)
		want   string
	}{
		"selector": {func(p *upgradev1.Plan) {
			p.Spec.NodeSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Equals"}}}
		}, "spec.nodeSelector is invalid, "},
		"window":   {func(p *upgradev1.Plan) { p.Spec.Window = &upgradev1.TimeWindowSpec{Days: []upgradev1.Day{"someday"}} }, "spec.window is invalid, invalid weekday: someday"},
		"upgrade":  {func(p *upgradev1.Plan) { p.Spec.Upgrade = nil }, "spec.upgrade is missing"},
		"version":  {func(p *upgradev1.Plan) { p.Spec.Version = "" }, "spec.version or spec.channel must say the version"},
		"strategy": {strategic(func(s *v1alpha1.Strategy) { s.MaxConcurrent = ptr.To(intstr.FromString("all")) }), "spec.strategy.maxConcurrent: "},
	} {
		t.Run(name, func(t *testing.T) {
			p := measured(tc.change)
			v := See(nil, fleetOf(1), nil, now).Preview(&p, Supposition{})
			if !strings.HasPrefix(v.Problem, tc.want) || v.Schedule != nil {
				t.Errorf("%q, want %q", v.Problem, tc.want)
			}
		})
	}
	refused := measured(func(p *upgradev1.Plan) {
		p.Status.Conditions = append(p.Status.Conditions[:1], upgradev1.Condition{Type: upgradev1.ConditionStalled, Status: metav1.ConditionTrue, Reason: upgradev1.ReasonNotReady, Message: "no Secret"})
	})
	for changed, want := range map[bool]string{false: "no Secret", true: ""} {
		if v := See(nil, fleetOf(1), nil, now).Preview(&refused, Supposition{Changed: changed}); v.Problem != want {
			t.Errorf("changed: %t, %q", changed, v.Problem)
		}
	}
	deleted := aNodeRollout(func(nr *v1alpha1.NodeRollout) { nr.DeletionTimestamp = at(now) })
	if v := See(nil, fleetOf(1), nil, now).Preview(&deleted, Supposition{}); v.Problem != "the rollout is being deleted, and its nodes are released" {
		t.Errorf("a deleted one: %q", v.Problem)
	}
}
