// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/kind/plan"
)

const hash = "abc123"

var (
	now    = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	minute = now.Add(-time.Minute)
)

func at(t time.Time) *metav1.Time { return &metav1.Time{Time: t} }

// plan is one whose status says how it stands; options change it.
func aPlan(options ...func(*upgradev1.Plan)) upgradev1.Plan {
	p := upgradev1.Plan{
		ObjectMeta: metav1.ObjectMeta{Namespace: "system-upgrade", Name: "agents", UID: "plan", Generation: 2, CreationTimestamp: *at(now.Add(-time.Hour))},
		Spec: upgradev1.PlanSpec{
			Concurrency: 2, NodeSelector: &metav1.LabelSelector{}, Drain: &upgradev1.DrainSpec{}, Version: "v2", Upgrade: &upgradev1.ContainerSpec{Image: "i"},
		},
		Status: upgradev1.PlanStatus{LatestVersion: "v2", LatestHash: hash, ObservedGeneration: 2},
	}
	conditions(upgradev1.ReasonSyncJob, "")(&p)
	for _, option := range options {
		option(&p)
	}
	return p
}

func conditions(reason, message string) func(*upgradev1.Plan) {
	return func(p *upgradev1.Plan) {
		complete := metav1.ConditionFalse
		if reason == upgradev1.ReasonComplete {
			complete = metav1.ConditionTrue
		}
		for _, c := range []upgradev1.Condition{
			{Type: upgradev1.ConditionValidated, Status: metav1.ConditionTrue},
			{Type: upgradev1.ConditionLatestResolved, Status: metav1.ConditionTrue},
			{Type: upgradev1.ConditionStalled, Status: metav1.ConditionFalse},
			{Type: upgradev1.ConditionComplete, Status: complete, Reason: reason, Message: message},
		} {
			p.Status.SetCondition(c, minute)
		}
	}
}

func condition(kind string, status metav1.ConditionStatus, message string) func(*upgradev1.Plan) {
	return func(p *upgradev1.Plan) {
		p.Status.SetCondition(upgradev1.Condition{Type: kind, Status: status, Message: message}, minute)
	}
}

func aNode(name string, options ...func(*corev1.Node)) corev1.Node {
	n := corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{corev1.LabelHostname: name}},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	}
	for _, option := range options {
		option(&n)
	}
	return n
}

func labelled(value string) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Labels[upgradev1.LabelPlanHash("agents")] = value }
}

func claimed(claims ...v1alpha1.Claim) func(*corev1.Node) {
	return func(n *corev1.Node) {
		value, err := v1alpha1.FormatClaims(claims)
		if err != nil {
			panic(err)
		}
		n.Annotations = map[string]string{v1alpha1.AnnotationClaims: value}
	}
}

func own() v1alpha1.Claim {
	return v1alpha1.Claim{Rollout: "Plan/system-upgrade/agents", UID: "plan", Since: *at(minute)}
}

// attempted makes the Plan's claims on nodes ones for what it asks for now, but for those that say for what they are.
func attempted(p *upgradev1.Plan, nodes ...corev1.Node) []corev1.Node {
	w, _ := plan.NewWorld(p)
	for i := range nodes {
		n := &nodes[i]
		claims, err := v1alpha1.ParseClaims(n.Annotations)
		if err != nil || len(claims) == 0 {
			continue
		}
		for j := range claims {
			if claims[j].UID == p.UID && claims[j].Attempt == "" {
				claims[j].Attempt = w.Attempt(n)
			}
		}
		claimed(claims...)(n)
	}
	return nodes
}

func TestNodes(t *testing.T) {
	failed, soaking := own(), own()
	failed.Failed = &v1alpha1.ClaimFailure{Reason: v1alpha1.ReasonJobFailed, Message: "it broke", Time: *at(now)}
	soaking.Soaking = at(now)
	before := failed
	before.Attempt = "before"
	other := v1alpha1.Claim{Rollout: "Plan/system-upgrade/other", UID: "other", Since: *at(minute)}

	type want struct {
		State  v1alpha1.UnitState
		Phase  v1alpha1.Phase
		Since  *metav1.Time
		Reason v1alpha1.Reason
	}
	for name, tc := range map[string]struct {
		plan upgradev1.Plan
		node corev1.Node
		want want
	}{
		"updated": {
			node: aNode("a", labelled(hash)),
			want: want{State: v1alpha1.UnitUpdated},
		},
		"outdated, and next": {
			node: aNode("a", labelled("old")),
			want: want{State: v1alpha1.UnitOutdated},
		},
		"waits for the reason that the status lists": {
			plan: aPlan(func(p *upgradev1.Plan) {
				p.Status.Waiting = []v1alpha1.UnitStatus{{Node: "a", Reason: v1alpha1.ReasonWindowsImageMissing}}
			}),
			node: aNode("a"),
			want: want{State: v1alpha1.UnitOutdated, Reason: v1alpha1.ReasonWindowsImageMissing},
		},
		"waits outside of the window, though no status lists it": {
			plan: aPlan(func(p *upgradev1.Plan) {
				p.Spec.Window = &upgradev1.TimeWindowSpec{Days: []upgradev1.Day{"sunday"}, StartTime: "01:00", EndTime: "02:00"}
			}),
			node: aNode("a"),
			want: want{State: v1alpha1.UnitOutdated, Reason: v1alpha1.ReasonOutsideWindow},
		},
		"waits for another rollout": {
			node: aNode("a", claimed(other)),
			want: want{State: v1alpha1.UnitOutdated, Reason: v1alpha1.ReasonClaimed},
		},
		"has claims that can't be read": {
			node: aNode("a", func(n *corev1.Node) { n.Annotations = map[string]string{v1alpha1.AnnotationClaims: "?"} }),
			want: want{State: v1alpha1.UnitOutdated, Reason: v1alpha1.ReasonClaimUnreadable},
		},
		"claimed, and the status does not know yet": {
			node: aNode("a", claimed(own())),
			want: want{State: v1alpha1.UnitUpdating, Phase: v1alpha1.PhaseClaimed, Since: at(minute)},
		},
		"in a phase": {
			plan: aPlan(func(p *upgradev1.Plan) {
				p.Status.Updating = []v1alpha1.UnitStatus{{Node: "a", Phase: v1alpha1.PhaseDraining, Since: at(now)}}
			}),
			node: aNode("a", claimed(own())),
			want: want{State: v1alpha1.UnitUpdating, Phase: v1alpha1.PhaseDraining, Since: at(now)},
		},
		"claimed again, and the status tells of the turn before": {
			plan: aPlan(func(p *upgradev1.Plan) {
				p.Status.Updating = []v1alpha1.UnitStatus{{Node: "a", Phase: v1alpha1.PhaseDraining, Since: at(minute.Add(-time.Second))}}
			}),
			node: aNode("a", claimed(own())),
			want: want{State: v1alpha1.UnitUpdating, Phase: v1alpha1.PhaseClaimed, Since: at(minute)},
		},
		"updated, and the status does not know yet": {
			plan: aPlan(func(p *upgradev1.Plan) {
				p.Status.Updating = []v1alpha1.UnitStatus{{Node: "a", Phase: v1alpha1.PhaseChanging, Since: at(now)}}
			}),
			node: aNode("a", labelled(hash)),
			want: want{State: v1alpha1.UnitUpdated},
		},
		"soaks": {
			node: aNode("a", claimed(soaking)),
			want: want{State: v1alpha1.UnitSoaking, Phase: v1alpha1.PhaseSoaking, Since: at(now)},
		},
		"failed": {
			node: aNode("a", claimed(failed)),
			want: want{State: v1alpha1.UnitFailed, Since: at(now), Reason: v1alpha1.ReasonJobFailed},
		},
		"failed, and waits for its second turn": {
			plan: aPlan(func(p *upgradev1.Plan) {
				p.Status.Waiting = []v1alpha1.UnitStatus{{Node: "a", Reason: v1alpha1.ReasonOutsideWindow}}
			}),
			node: aNode("a", claimed(before)),
			want: want{State: v1alpha1.UnitOutdated, Reason: v1alpha1.ReasonOutsideWindow},
		},
		"in a turn, and not selected any more": {
			plan: aPlan(func(p *upgradev1.Plan) { p.Spec.NodeSelector = nil }),
			node: aNode("a", claimed(own())),
			want: want{State: v1alpha1.UnitUpdating, Phase: v1alpha1.PhaseClaimed, Since: at(minute)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.plan.Name == "" {
				tc.plan = aPlan()
			}
			r := See([]upgradev1.Plan{tc.plan}, attempted(&tc.plan, tc.node), nil, now).Rollouts()[0]
			if len(r.Nodes) != 1 {
				t.Fatalf("nodes: %+v, want one", r.Nodes)
			}
			n := r.Nodes[0]
			if diff := cmp.Diff(tc.want, want{n.State, n.Phase, n.Since, n.Reason}); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestNotSelected(t *testing.T) {
	nodes := []corev1.Node{
		aNode("other", func(n *corev1.Node) { n.Labels["pool"] = "other" }),
		aNode("nameless", func(n *corev1.Node) { delete(n.Labels, corev1.LabelHostname) }),
		aNode("opted-out", labelled(upgradev1.LabelDisabled)),
		aNode("updated", labelled(hash)),
	}
	p := aPlan(func(p *upgradev1.Plan) {
		p.Spec.NodeSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "pool", Operator: metav1.LabelSelectorOpDoesNotExist}}}
	})
	r := See([]upgradev1.Plan{p}, nodes, nil, now).Rollouts()[0]
	if len(r.Nodes) != 1 || r.OptedOut != 1 {
		t.Errorf("%d nodes and %d opted out, want 1 and 1", len(r.Nodes), r.OptedOut)
	}
	if diff := cmp.Diff(v1alpha1.UnitCounts{Total: 1, Updated: 1}, r.Counts); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
}

// TestOrder has more nodes than a status lists.
func TestOrder(t *testing.T) {
	failed := own()
	failed.Failed = &v1alpha1.ClaimFailure{Reason: v1alpha1.ReasonJobFailed, Time: *at(now)}
	older := own()
	older.Since = *at(minute.Add(-time.Second))
	nodes := []corev1.Node{
		aNode("z", labelled(hash)), aNode("y", labelled(hash)), aNode("young", claimed(own())), aNode("old", claimed(older)), aNode("failed", claimed(failed)),
	}
	p := aPlan(func(p *upgradev1.Plan) {
		for i := range v1alpha1.MaxListedUnits {
			p.Status.Waiting = append(p.Status.Waiting, v1alpha1.UnitStatus{Node: fmt.Sprint("w", i), Reason: v1alpha1.ReasonMaxConcurrent})
		}
	})
	for i := range v1alpha1.MaxListedUnits + 5 {
		nodes = append(nodes, aNode(fmt.Sprint("w", i)))
	}
	r := See([]upgradev1.Plan{p}, attempted(&p, nodes...), nil, now).Rollouts()[0]
	want := []string{"failed", "old", "young"}
	for i := range v1alpha1.MaxListedUnits {
		want = append(want, fmt.Sprint("w", i))
	}
	var got []string
	for _, n := range r.Nodes {
		got = append(got, n.Node)
		if n.State == v1alpha1.UnitOutdated && n.Reason != v1alpha1.ReasonMaxConcurrent {
			t.Errorf("%s waits for %q", n.Node, n.Reason)
		}
	}
	if diff := cmp.Diff(want, got[:len(want)]); diff != "" {
		t.Errorf("first nodes (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"y", "z"}, got[len(got)-2:]); diff != "" {
		t.Errorf("last nodes (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(v1alpha1.UnitCounts{Total: 30, Updated: 2, Updating: 2, Failed: 1, Waiting: 25}, r.Counts); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
}

func TestWithoutNodes(t *testing.T) {
	counts := v1alpha1.UnitCounts{Total: 9, Updated: 6, Updating: 1, Failed: 1, Waiting: 1}
	p := aPlan(func(p *upgradev1.Plan) {
		p.Status.Counts = &counts
		p.Status.Updating = []v1alpha1.UnitStatus{{Node: "a", Phase: v1alpha1.PhaseSoaking, Since: at(now)}}
		p.Status.Failed = []v1alpha1.UnitStatus{{Node: "b", Reason: v1alpha1.ReasonJobLost, Since: at(now)}}
		p.Status.Waiting = []v1alpha1.UnitStatus{{Node: "c", Reason: v1alpha1.ReasonMaxConcurrent}}
	})
	r := See([]upgradev1.Plan{p}, nil, nil, now).Rollouts()[0]
	want := []Node{
		{Node: "b", State: v1alpha1.UnitFailed, Reason: v1alpha1.ReasonJobLost, Since: at(now)},
		{Node: "a", State: v1alpha1.UnitSoaking, Phase: v1alpha1.PhaseSoaking, Since: at(now)},
		{Node: "c", State: v1alpha1.UnitOutdated, Reason: v1alpha1.ReasonMaxConcurrent},
	}
	if diff := cmp.Diff(want, r.Nodes); diff != "" {
		t.Errorf("nodes (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(counts, r.Counts); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
}

func TestState(t *testing.T) {
	for name, tc := range map[string]struct {
		plan    upgradev1.Plan
		want    State
		message string
		since   *metav1.Time
	}{
		"new": {
			plan: aPlan(func(p *upgradev1.Plan) { p.Status, p.CreationTimestamp = upgradev1.PlanStatus{}, *at(now) }),
			want: Pending,
		},
		"no one looks": {
			plan: aPlan(func(p *upgradev1.Plan) { p.Status = upgradev1.PlanStatus{} }),
			want: Pending, message: "no controller has looked at it: does one run, for its kind and namespace?",
		},
		"changed": {
			plan: aPlan(conditions(upgradev1.ReasonComplete, ""), func(p *upgradev1.Plan) { p.Generation++ }),
			want: Pending, message: "the controller has not looked at its latest change yet",
		},
		"of system-upgrade-controller, which observes no generation": {
			plan: aPlan(conditions(upgradev1.ReasonComplete, ""), func(p *upgradev1.Plan) { p.Status.ObservedGeneration = 0 }),
			want: Complete, since: at(minute),
		},
		"complete, and its nodes are seen as they were before": {
			plan: aPlan(conditions(upgradev1.ReasonComplete, ""), func(p *upgradev1.Plan) { p.Status.Counts = &v1alpha1.UnitCounts{Total: 2, Updated: 1, Updating: 1} }),
			want: Progressing, since: at(minute),
		},
		"under way":      {plan: aPlan(), want: Progressing, since: at(minute)},
		"about to start": {plan: aPlan(conditions(upgradev1.ReasonResolved, "")), want: Progressing, since: at(minute)},
		"outside of the window": {
			plan: aPlan(conditions(upgradev1.ReasonWaiting, "closed")),
			want: Waiting, message: "closed", since: at(minute),
		},
		"one has failed": {
			plan: aPlan(conditions(upgradev1.ReasonJobFailed, "it broke")),
			want: Waiting, message: "it broke", since: at(minute),
		},
		"failures hold every slot": {
			plan: aPlan(conditions(upgradev1.ReasonJobFailed, "it broke"), condition(upgradev1.ConditionStalled, metav1.ConditionTrue, "0 of 9 nodes updated: it broke")),
			want: Stalled, message: "0 of 9 nodes updated: it broke", since: at(minute),
		},
		"not valid": {
			plan: aPlan(conditions(upgradev1.ReasonNotReady, "plan is not valid and resolved"),
				condition(upgradev1.ConditionValidated, metav1.ConditionFalse, "bad window"), condition(upgradev1.ConditionStalled, metav1.ConditionTrue, "bad window")),
			want: Stalled, message: "bad window", since: at(minute),
		},
		"asks its channel": {
			plan: aPlan(conditions(upgradev1.ReasonNotReady, "plan is not valid and resolved"),
				condition(upgradev1.ConditionLatestResolved, metav1.ConditionUnknown, "the channel is being asked")),
			want: Waiting, message: "the channel is being asked", since: at(minute),
		},
		"complete, at an older version than the channel's": {
			plan: aPlan(conditions(upgradev1.ReasonComplete, ""), condition(upgradev1.ConditionLatestResolved, metav1.ConditionTrue, "version v2 stays")),
			want: Complete, message: "version v2 stays", since: at(minute),
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := See([]upgradev1.Plan{tc.plan}, nil, nil, now).Rollouts()[0]
			if r.State != tc.want || r.Message != tc.message {
				t.Errorf("%s: %q, want %s: %q", r.State, r.Message, tc.want, tc.message)
			}
			if diff := cmp.Diff(tc.since, r.Since); diff != "" {
				t.Errorf("since (-want +got):\n%s", diff)
			}
		})
	}
}
