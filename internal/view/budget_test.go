// SPDX-License-Identifier: Apache-2.0

package view

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
)

// aBudget is one over all nodes that its operator has looked at; options change it.
func aBudget(options ...func(*v1alpha1.NodeDisruptionBudget)) v1alpha1.NodeDisruptionBudget {
	b := v1alpha1.NodeDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "all", Generation: 3, CreationTimestamp: *at(now.Add(-time.Hour))},
		Status:     v1alpha1.NodeDisruptionBudgetStatus{ObservedGeneration: 3},
	}
	for _, option := range options {
		option(&b)
	}
	return b
}

func atMost(n int) func(*v1alpha1.NodeDisruptionBudget) {
	return func(b *v1alpha1.NodeDisruptionBudget) { b.Spec.MaxUnavailable = ptr.To(intstr.FromInt(n)) }
}

func afterDrains(b *v1alpha1.NodeDisruptionBudget) {
	b.Spec.Gates = &v1alpha1.Gates{Workloads: &v1alpha1.WorkloadsGate{}}
}

func closedBy(gate v1alpha1.Reason, message string) func(*v1alpha1.NodeDisruptionBudget) {
	return func(b *v1alpha1.NodeDisruptionBudget) {
		afterDrains(b)
		b.Status.BlockedBy = append(b.Status.BlockedBy, v1alpha1.BudgetBlock{Gate: gate, Message: message, Since: *at(minute)})
	}
}

func cordoned(n *corev1.Node) { n.Spec.Unschedulable = true }

func unready(n *corev1.Node) {
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse, LastTransitionTime: *at(minute), Message: "no network"}}
}

func TestBudgets(t *testing.T) {
	type want struct {
		State     BudgetState
		Matched   int
		Used      int
		Allowed   *int32
		BlockedBy []v1alpha1.BudgetBlock
		Line      string
	}
	three := []corev1.Node{aNode("a"), aNode("b", cordoned), aNode("c", claimed(own()))}
	for name, tc := range map[string]struct {
		budget v1alpha1.NodeDisruptionBudget
		nodes  []corev1.Node
		want   want
	}{
		"open": {
			budget: aBudget(atMost(3)), nodes: three,
			want: want{BudgetOpen, 3, 2, ptr.To[int32](1), nil, "2 of at most 3 unavailable, 1 more may be taken"},
		},
		"without a limit": {
			budget: aBudget(), nodes: three,
			want: want{BudgetOpen, 3, 2, nil, nil, "2 of 3 unavailable, no limit by number"},
		},
		"exhausted": {
			budget: aBudget(atMost(1)), nodes: three,
			want: want{BudgetExhausted, 3, 2, ptr.To[int32](0), nil, "2 of at most 1 unavailable, none more may be taken"},
		},
		"paused": {
			budget: aBudget(atMost(3), func(b *v1alpha1.NodeDisruptionBudget) { b.Spec.Paused = true }), nodes: three,
			want: want{
				BudgetBlocked, 3, 2, ptr.To[int32](0), []v1alpha1.BudgetBlock{{Gate: v1alpha1.ReasonBudgetPaused, Message: "it is paused"}},
				"2 of at most 3 unavailable, none more may be taken",
			},
		},
		"a gate that only the operator sees, since when it says": {
			budget: aBudget(closedBy(v1alpha1.ReasonWorkloadsUnavailable, "shop/cart")), nodes: three,
			want: want{
				BudgetBlocked, 3, 2, ptr.To[int32](0),
				[]v1alpha1.BudgetBlock{{Gate: v1alpha1.ReasonWorkloadsUnavailable, Message: "shop/cart", Since: *at(minute)}},
				"2 of 3 unavailable, none more may be taken",
			},
		},
		"a gate of an older change is not known": {
			budget: aBudget(closedBy(v1alpha1.ReasonPodsBlock, "shop/cart"), func(b *v1alpha1.NodeDisruptionBudget) { b.Generation++ }), nodes: three,
			want: want{BudgetOpen, 3, 2, nil, nil, "2 of 3 unavailable, no limit by number"},
		},
		"invalid": {
			budget: aBudget(func(b *v1alpha1.NodeDisruptionBudget) { b.Spec.MaxUnavailable = ptr.To(intstr.FromString("some")) }), nodes: three,
			want: want{
				BudgetInvalid, 3, 2, ptr.To[int32](0),
				[]v1alpha1.BudgetBlock{{Gate: v1alpha1.ReasonBudgetInvalid, Message: `spec.maxUnavailable: "some" is neither a count nor a percentage from 0% to 100%`}},
				"2 of at most 0 unavailable, none more may be taken",
			},
		},
		"without nodes it is what the status says": {
			budget: aBudget(func(b *v1alpha1.NodeDisruptionBudget) {
				b.Status.Matched, b.Status.Unavailable, b.Status.Allowed = 9, 4, ptr.To[int32](2)
			}),
			want: want{BudgetOpen, 9, 4, ptr.To[int32](2), nil, "4 of 9 unavailable, 2 more may be taken"},
		},
		"one domain at a time": {
			budget: aBudget(func(b *v1alpha1.NodeDisruptionBudget) { b.Spec.TopologyKey = corev1.LabelTopologyZone }), nodes: three,
			want: want{BudgetOpen, 3, 2, nil, nil, "2 of 3 unavailable, no limit by number, only in topology.kubernetes.io/zone=(none)"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := See(nil, tc.nodes, []v1alpha1.NodeDisruptionBudget{tc.budget}, now).Budgets()[0]
			if diff := cmp.Diff(tc.want, want{b.State, b.Matched, b.Unavailable, b.Allowed, b.BlockedBy, b.Line()}); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// A cordon that was forgotten keeps the nodes of all other zones waiting. The end of a turn needs no person.
func TestNeedsOfDomains(t *testing.T) {
	inZone := func(n *corev1.Node) { n.Labels[corev1.LabelTopologyZone] = "b" }
	byZone := aBudget(func(b *v1alpha1.NodeDisruptionBudget) { b.Spec.TopologyKey = corev1.LabelTopologyZone })
	for want, nodes := range [][]corev1.Node{{aNode("a", claimed(own())), aNode("b", inZone)}, {aNode("a", cordoned), aNode("b", inZone)}} {
		if all := Needs(nil, See(nil, nodes, []v1alpha1.NodeDisruptionBudget{byZone}, now).Budgets()); len(all) != want {
			t.Errorf("%+v, want %d", all, want)
		}
	}
}

// What others do ends many waits. A person must learn of those that nobody ends.
func TestNeedsOfWaits(t *testing.T) {
	for reason, want := range map[v1alpha1.Reason]int{v1alpha1.ReasonHostnameShared: 1, v1alpha1.ReasonMaxConcurrent: 0} {
		r := Rollout{Nodes: []Node{{Node: "n", State: v1alpha1.UnitOutdated, Reason: reason}}}
		if all := Needs([]Rollout{r}, nil); len(all) != want {
			t.Errorf("%s: %+v, want %d", reason, all, want)
		}
	}
}

func TestBudgetHoldersOldestFirst(t *testing.T) {
	nodes := []corev1.Node{aNode("a", cordoned), aNode("b", claimed(own())), aNode("c", unready)}
	nodes[2].Status.Conditions[0].LastTransitionTime = *at(minute.Add(-time.Hour))
	b := See(nil, nodes, []v1alpha1.NodeDisruptionBudget{aBudget()}, now).Budgets()[0]
	var got []string
	for _, h := range b.Holders {
		got = append(got, h.Node+" "+string(h.Cause))
	}
	if diff := cmp.Diff([]string{"c NotReady", "b Claimed", "a Unschedulable"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// What rollouts that are not shown do to nodes uses up budgets too: a Node that was deleted before its replacement joined, and a pod that is replaced.
func TestOthersUseUpBudgets(t *testing.T) {
	pool := aReplacement(inTurn(v1alpha1.MachineJoining, func(t *v1alpha1.MachineTurn) { t.Absent = &v1alpha1.AbsentNode{Name: "gone"} }))
	c := See(nil, []corev1.Node{aNode("a")}, []v1alpha1.NodeDisruptionBudget{aBudget(atMost(1))}, now).NodeRollouts(nil, pool)
	if b := c.Budgets()[0]; b.Matched != 2 || b.Unavailable != 1 || b.Holders[0].Node != "gone" {
		t.Errorf("with an absent node: %+v", b)
	}
	f := newFarm(2).has("new", nil, 0).has("old", going, 1)
	f.budgets = []v1alpha1.NodeDisruptionBudget{aBudget(atMost(1), func(b *v1alpha1.NodeDisruptionBudget) {
		b.Spec.Counts = []v1alpha1.BudgetCount{v1alpha1.CountNodes, v1alpha1.CountDaemonPods}
	})}
	others := f.see().daemons
	c = See(nil, f.nodes, f.budgets, now).Daemons(Daemons{}, others)
	if b := c.Budgets()[0]; b.Unavailable != 1 || b.Holders[0].Node != "n1" || len(c.Rollouts()) > 0 {
		t.Errorf("with a replaced pod: %+v, and %d rollouts", b, len(c.Rollouts()))
	}
	others.Sets[0].DeletionTimestamp = at(now)
	if b := See(nil, f.nodes, f.budgets, now).Daemons(Daemons{}, others).Budgets()[0]; b.Unavailable != 0 {
		t.Errorf("with an ExtendedDaemonSet that is being deleted: %+v", b)
	}
}

// The operator writes into the status that nodes are not drained yet. It is told once.
func TestUndrainedIsToldOnce(t *testing.T) {
	drains := own()
	drains.Drains = true
	b := aBudget(closedBy(v1alpha1.ReasonWorkloadsUnavailable, "nodes that are not drained yet: a"))
	if all := See(nil, []corev1.Node{aNode("a", claimed(drains))}, []v1alpha1.NodeDisruptionBudget{b}, now).Budgets()[0].BlockedBy; len(all) != 1 {
		t.Errorf("%+v", all)
	}
}

// TestBudgetsBeingDeleted: a budget that is being deleted limits nothing, and is not shown.
func TestBudgetsBeingDeleted(t *testing.T) {
	deleted := aBudget(atMost(0), func(b *v1alpha1.NodeDisruptionBudget) { b.DeletionTimestamp = at(now) })
	for _, nodes := range [][]corev1.Node{nil, {aNode("a")}} {
		if all := See(nil, nodes, []v1alpha1.NodeDisruptionBudget{deleted}, now).Budgets(); len(all) > 0 {
			t.Errorf("%+v", all)
		}
	}
}

// TestBudgetsKeepNodesBack though no status lists them.
func TestBudgetsKeepNodesBack(t *testing.T) {
	nodes := []corev1.Node{aNode("a"), aNode("b", cordoned)}
	r := See([]upgradev1.Plan{aPlan()}, nodes, []v1alpha1.NodeDisruptionBudget{aBudget(atMost(1))}, now).Rollouts()[0]
	// The one that uses it up costs nothing more.
	for _, n := range r.Nodes {
		if n.Node == "a" && n.Reason != v1alpha1.ReasonBudgetExhausted {
			t.Errorf("%s waits for %q", n.Node, n.Reason)
		}
	}
	if diff := cmp.Diff([]string{"all"}, r.Budgets); diff != "" {
		t.Errorf("budgets (-want +got):\n%s", diff)
	}
}
