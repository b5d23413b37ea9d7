// SPDX-License-Identifier: Apache-2.0

package view

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
)

func strategic(change func(*v1alpha1.Strategy)) func(*upgradev1.Plan) {
	return func(p *upgradev1.Plan) {
		if p.Spec.Strategy == nil {
			p.Spec.Strategy = &v1alpha1.Strategy{}
		}
		change(p.Spec.Strategy)
	}
}

func paused(s *v1alpha1.Strategy) { s.Paused = true }

// refusals are the checks that a node does not pass.
func refusals(p *Part) []v1alpha1.Reason {
	var all []v1alpha1.Reason
	for _, c := range p.Checks {
		if c.Reason != "" {
			all = append(all, c.Reason)
		}
	}
	return all
}

func TestWhyAsksEveryCheck(t *testing.T) {
	failed := own()
	failed.Failed = &v1alpha1.ClaimFailure{Reason: v1alpha1.ReasonJobFailed, Message: "it broke", Time: *at(now)}
	other := v1alpha1.Claim{Rollout: "Plan/system-upgrade/other", UID: "other", Since: *at(minute)}
	closed := func(p *upgradev1.Plan) {
		p.Spec.Window = &upgradev1.TimeWindowSpec{Days: []upgradev1.Day{"sunday"}, StartTime: "01:00", EndTime: "02:00"}
	}
	mFirst := strategic(func(s *v1alpha1.Strategy) {
		s.Order = []v1alpha1.Order{{By: v1alpha1.OrderLabel, Key: "first", Values: []string{"yes"}}}
	})
	m := aNode("m", func(n *corev1.Node) { n.Labels["first"] = "yes" })
	told := func(reason v1alpha1.Reason) func(*upgradev1.Plan) {
		return func(p *upgradev1.Plan) {
			p.Status.Waiting = []v1alpha1.UnitStatus{{Node: "n", Reason: reason, Message: "so"}}
		}
	}
	for name, tc := range map[string]struct {
		plan    upgradev1.Plan
		node    corev1.Node
		others  []corev1.Node
		budgets []v1alpha1.NodeDisruptionBudget
		state   v1alpha1.UnitState
		place   int
		want    []v1alpha1.Reason
	}{
		"nothing": {plan: aPlan(), node: aNode("n"), state: v1alpha1.UnitOutdated, place: 1},
		"all at once": {
			plan: aPlan(closed, strategic(paused)), node: aNode("n", claimed(other)), budgets: []v1alpha1.NodeDisruptionBudget{aBudget(atMost(0))},
			state: v1alpha1.UnitOutdated, place: 1,
			want: []v1alpha1.Reason{v1alpha1.ReasonPaused, v1alpha1.ReasonOutsideWindow, v1alpha1.ReasonClaimed, v1alpha1.ReasonBudgetExhausted},
		},
		"those before it have the slots": {
			plan: aPlan(concurrency(1), mFirst), node: aNode("n"), others: []corev1.Node{m},
			state: v1alpha1.UnitOutdated, place: 2, want: []v1alpha1.Reason{v1alpha1.ReasonMaxConcurrent},
		},
		"the drain of one before it has to begin": {
			plan: aPlan(mFirst), node: aNode("n"), others: []corev1.Node{m}, budgets: []v1alpha1.NodeDisruptionBudget{aBudget(afterDrains)},
			state: v1alpha1.UnitOutdated, place: 2, want: []v1alpha1.Reason{v1alpha1.ReasonWorkloadsUnavailable},
		},
		"one before it does not drain": {
			plan: aPlan(mFirst, func(p *upgradev1.Plan) { p.Spec.Drain = nil }), node: aNode("n"), others: []corev1.Node{m},
			budgets: []v1alpha1.NodeDisruptionBudget{aBudget(afterDrains)}, state: v1alpha1.UnitOutdated, place: 2,
		},
		"what only the operator knows": {
			plan: aPlan(told(v1alpha1.ReasonJobRefused)), node: aNode("n"),
			state: v1alpha1.UnitOutdated, place: 1, want: []v1alpha1.Reason{v1alpha1.ReasonJobRefused},
		},
		"what was so when the status was written is not repeated": {
			plan: aPlan(told(v1alpha1.ReasonMaxConcurrent)), node: aNode("n"), state: v1alpha1.UnitOutdated, place: 1,
		},
		"a shared hostname": {
			plan: aPlan(), node: aNode("n"), others: []corev1.Node{aNode("m", func(n *corev1.Node) { n.Labels[corev1.LabelHostname] = "n" })},
			state: v1alpha1.UnitOutdated, place: 1, want: []v1alpha1.Reason{v1alpha1.ReasonHostnameShared},
		},
		"updated":   {plan: aPlan(), node: aNode("n", labelled(hash)), state: v1alpha1.UnitUpdated},
		"in a turn": {plan: aPlan(), node: aNode("n", claimed(own())), state: v1alpha1.UnitUpdating},
		"failed":    {plan: aPlan(), node: aNode("n", claimed(failed)), state: v1alpha1.UnitFailed},
		"opted out": {
			plan: aPlan(), node: aNode("n", labelled(upgradev1.LabelDisabled)),
			state: v1alpha1.UnitOutdated, place: 1, want: []v1alpha1.Reason{v1alpha1.ReasonOptedOut},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, ok := See([]upgradev1.Plan{tc.plan}, attempted(&tc.plan, append(tc.others, tc.node)...), tc.budgets, now).Why("n")
			if !ok || len(w.Rollouts) != 1 {
				t.Fatalf("%v, %+v", ok, w)
			}
			p := &w.Rollouts[0]
			if tc.plan.Name == "agents" && len(tc.others) > 0 && tc.place == 1 {
				tc.place = p.Place // Whose turn comes first is not what is asked here.
			}
			if p.Unit.State != tc.state || p.Place != tc.place {
				t.Errorf("%s at place %d, want %s at %d", p.Unit.State, p.Place, tc.state, tc.place)
			}
			if diff := cmp.Diff(tc.want, refusals(p)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if (tc.place == 0) != (len(p.Checks) == 0) {
				t.Errorf("checks: %+v", p.Checks)
			}
		})
	}
}

func TestWhyOfTheNodeItself(t *testing.T) {
	n := aNode("n", cordoned, unready, claimed(own()), func(n *corev1.Node) {
		n.Annotations[v1alpha1.AnnotationCordonedBy] = "Plan/system-upgrade/agents"
		n.Annotations[v1alpha1.AnnotationEvicted] = `["ReplicaSet/shop/cart"]`
		n.Status.Conditions = append(n.Status.Conditions,
			corev1.NodeCondition{Type: corev1.NodeDiskPressure, Status: corev1.ConditionTrue, LastTransitionTime: *at(minute), Message: "full"},
			corev1.NodeCondition{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse})
		n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}, {Key: "x", Effect: corev1.TaintEffectNoExecute}}
	})
	w, _ := See(nil, []corev1.Node{n}, nil, now).Why("n")
	want := Facts{
		Name: "n", ReadySince: at(minute), ReadyMessage: "no network", Unschedulable: true, CordonedBy: "Plan/system-upgrade/agents",
		Claims: w.Node.Claims, Evicted: []string{"ReplicaSet/shop/cart"}, Taints: []string{"x:NoExecute"},
		Conditions: []Condition{{Type: "DiskPressure", Status: "True", Since: at(minute), Message: "full"}},
	}
	if diff := cmp.Diff(want, w.Node); diff != "" || len(w.Node.Claims) != 1 {
		t.Errorf("(-want +got):\n%s", diff)
	}
	own := own()
	own.Uncordon = true
	if w, _ := See(nil, []corev1.Node{aNode("n", cordoned, claimed(own))}, nil, now).Why("n"); w.Node.CordonedBy != own.Rollout {
		t.Errorf("a node that its turn uncordons is cordoned by %q", w.Node.CordonedBy)
	}
	n.Annotations[v1alpha1.AnnotationEvicted] = "?"
	n.Annotations[v1alpha1.AnnotationClaims] = "?"
	if w, _ := See(nil, []corev1.Node{n}, nil, now).Why("n"); w.Node.ClaimError == "" || len(w.Node.Evicted) != 1 {
		t.Errorf("what can't be read is not told: %+v", w.Node)
	}
	delete(n.Annotations, v1alpha1.AnnotationClaims)
	if w, _ := See(nil, []corev1.Node{n}, nil, now).Why("n"); !strings.HasPrefix(w.Node.ClaimError, "reading annotation moult.dev/evicted, ") {
		t.Errorf("an unreadable record does not keep the node: %+v", w.Node)
	}
	if _, ok := See(nil, []corev1.Node{n}, nil, now).Why("m"); ok {
		t.Error("there is no node m")
	}
}

func TestWhyNotSelected(t *testing.T) {
	selecting := func(s *metav1.LabelSelector) upgradev1.Plan {
		return aPlan(func(p *upgradev1.Plan) { p.Spec.NodeSelector = s })
	}
	nameless := aNode("n", func(n *corev1.Node) { delete(n.Labels, corev1.LabelHostname) })
	for name, tc := range map[string]struct {
		plan upgradev1.Plan
		node corev1.Node
		want string
	}{
		"no selector": {selecting(nil), aNode("n"), "it has no spec.nodeSelector, and so selects no node"},
		"other label": {selecting(&metav1.LabelSelector{MatchLabels: map[string]string{"pool": "blue", corev1.LabelHostname: "n"}}), aNode("n"), "its spec.nodeSelector asks for pool=blue"},
		"no hostname": {aPlan(), nameless, "the node has no label kubernetes.io/hostname"},
	} {
		t.Run(name, func(t *testing.T) {
			w, _ := See([]upgradev1.Plan{tc.plan}, []corev1.Node{tc.node}, nil, now).Why("n")
			if len(w.Rollouts) != 0 || len(w.Others) != 1 || w.Others[0].Message != tc.want {
				t.Errorf("%+v, want %s", w, tc.want)
			}
		})
	}
}

func TestWhyBudgets(t *testing.T) {
	elsewhere := aBudget(func(b *v1alpha1.NodeDisruptionBudget) {
		b.Name, b.Spec.Selector = "elsewhere", &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "blue"}}
	})
	w, _ := See(nil, []corev1.Node{aNode("n")}, []v1alpha1.NodeDisruptionBudget{elsewhere, aBudget(atMost(1))}, now).Why("n")
	if len(w.Budgets) != 1 || w.Budgets[0].Name != "all" {
		t.Errorf("%+v", w.Budgets)
	}
}

func TestWhyDoesNotCountEvictions(t *testing.T) {
	p := aPlan(strategic(func(s *v1alpha1.Strategy) { s.Order = []v1alpha1.Order{{By: v1alpha1.OrderFewestEvictionsFirst}} }))
	c := See([]upgradev1.Plan{p}, []corev1.Node{aNode("n")}, nil, now)
	if w, _ := c.Why("n"); w.Rollouts[0].Note == "" {
		t.Error("it does not say that pods are not counted")
	}
	c.Evictions(map[string]int{"n": 3, "gone": 1})
	if w, _ := c.Why("n"); w.Rollouts[0].Note != "" {
		t.Error("pods are counted")
	}
}

// A rollout that is not valid judges no node, and says why.
func TestWhyUnjudged(t *testing.T) {
	none := aNodeRollout(func(r *v1alpha1.NodeRollout) {
		r.Spec.NodeSelector = metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Resembles"}}}
	})
	claim := own()
	claim.UID = none.UID
	c := See(nil, []corev1.Node{aNode("n", claimed(claim))}, nil, now)
	c.nodeRollouts = []v1alpha1.NodeRollout{none}
	why, _ := c.Why("n")
	if len(why.Rollouts) != 1 {
		t.Fatalf("%+v", why)
	}
	if u := why.Rollouts[0].Unit; u.State != Untold || !strings.Contains(u.Message, "has not judged the node: spec.nodeSelector is invalid") {
		t.Errorf("%+v", u)
	}
}

// TestSteering: what a person has done to a rollout, or is to do.
func TestSteering(t *testing.T) {
	canary := strategic(func(s *v1alpha1.Strategy) {
		s.Waves = []v1alpha1.Wave{{Name: "canary", NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelHostname: "c"}}, Approval: v1alpha1.ApprovalManual}}
	})
	failed := own()
	failed.Failed = &v1alpha1.ClaimFailure{Reason: v1alpha1.ReasonJobFailed, Time: *at(minute)}

	r := See([]upgradev1.Plan{aPlan(canary)}, []corev1.Node{aNode("c", labelled(hash)), aNode("n")}, nil, now).Rollouts()[0]
	if w := r.Wave; w == nil || w.State != v1alpha1.WaveWaitingForApproval || !strings.HasPrefix(w.ApproveWith, "canary@"+hash+"/") {
		t.Errorf("wave: %+v", w)
	}
	if i := slices.IndexFunc(r.Nodes, func(n Node) bool { return n.Node == "n" }); r.Nodes[i].Reason != v1alpha1.ReasonWaitingForApproval {
		t.Errorf("n waits for %q", r.Nodes[i].Reason)
	}
	p := aPlan(canary)
	r = See([]upgradev1.Plan{p}, attempted(&p, aNode("c", claimed(failed)), aNode("n")), nil, now).Rollouts()[0]
	if r.Halted == "" || r.Wave == nil || r.Wave.State != v1alpha1.WaveHalted {
		t.Errorf("halted: %q, %+v", r.Halted, r.Wave)
	}
	if r = See([]upgradev1.Plan{aPlan(strategic(paused))}, nil, nil, now).Rollouts()[0]; !r.Paused {
		t.Error("it is paused")
	}
}

// TestSkipped: a node that was released is not one that waits, though the status lists it among them.
func TestSkipped(t *testing.T) {
	skipped := own()
	skipped.Failed = &v1alpha1.ClaimFailure{Reason: v1alpha1.ReasonDrainTimeout, Time: *at(minute), Skipped: true}
	p := aPlan(func(p *upgradev1.Plan) {
		p.Status.Waiting = []v1alpha1.UnitStatus{{Node: "n", Reason: v1alpha1.ReasonDrainTimeout}}
	})
	n := See([]upgradev1.Plan{p}, attempted(&p, aNode("n", claimed(skipped))), nil, now).Rollouts()[0].Nodes[0]
	if n.State != v1alpha1.UnitFailed || !n.Skipped {
		t.Errorf("%+v", n)
	}
}

// TestRetryAt: a failed node says when it is tried again by itself.
func TestRetryAt(t *testing.T) {
	failed := own()
	failed.Failures, failed.Failed = 1, &v1alpha1.ClaimFailure{Reason: v1alpha1.ReasonJobFailed, Time: *at(now)}
	p := aPlan(strategic(func(s *v1alpha1.Strategy) { s.Retries = &v1alpha1.Retries{Limit: 2} }))
	n := See([]upgradev1.Plan{p}, attempted(&p, aNode("n", claimed(failed))), nil, now).Rollouts()[0].Nodes[0]
	if n.RetryAt == nil || !n.RetryAt.Time.Equal(now.Add(60e9)) {
		t.Errorf("%+v", n)
	}
}
