// SPDX-License-Identifier: Apache-2.0

package moult

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/kind/plan"
	"moult.dev/moult/internal/view"
)

func before(d time.Duration) metav1.Time { return metav1.Time{Time: now.Add(-d)} }

func whyPlan(name string, options ...func(*upgradev1.Plan)) upgradev1.Plan {
	p := upgradev1.Plan{
		ObjectMeta: metav1.ObjectMeta{Namespace: "system-upgrade", Name: name, UID: "uid-of-plan"},
		Spec:       upgradev1.PlanSpec{Concurrency: 2, NodeSelector: &metav1.LabelSelector{}, Drain: &upgradev1.DrainSpec{}},
		Status:     upgradev1.PlanStatus{LatestVersion: "v2", LatestHash: "hash"},
	}
	for _, kind := range []string{upgradev1.ConditionValidated, upgradev1.ConditionLatestResolved} {
		p.Status.SetCondition(upgradev1.Condition{Type: kind, Status: metav1.ConditionTrue}, before(time.Hour).Time)
	}
	p.Status.SetCondition(upgradev1.Condition{Type: upgradev1.ConditionComplete, Status: metav1.ConditionFalse, Reason: upgradev1.ReasonSyncJob}, before(time.Hour).Time)
	for _, option := range options {
		option(&p)
	}
	return p
}

func whyNode(name string, options ...func(*corev1.Node)) corev1.Node {
	n := corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}, Annotations: map[string]string{}},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: before(48 * time.Hour)}}},
	}
	for _, option := range options {
		option(&n)
	}
	return n
}

func claimed(claims ...v1alpha1.Claim) func(*corev1.Node) {
	return func(n *corev1.Node) {
		value, err := v1alpha1.FormatClaims(claims)
		if err != nil {
			panic(err)
		}
		n.Annotations[v1alpha1.AnnotationClaims] = value
	}
}

// claim is one for what the Plan asks for now.
func claim() v1alpha1.Claim {
	p := whyPlan("agents")
	w, _ := plan.NewWorld(&p)
	return v1alpha1.Claim{Rollout: w.Holder, UID: p.UID, Attempt: w.Attempt(&corev1.Node{}), Since: before(12 * time.Second)}
}

func TestDraw(t *testing.T) {
	failed, skipped := claim(), claim()
	failed.Failed = &v1alpha1.ClaimFailure{
		Reason: v1alpha1.ReasonJobFailed, Message: "Job system-upgrade/apply-agents failed on Node worker-1: BackoffLimitExceeded: Job has reached the specified backoff limit",
		Time: before(5 * time.Minute),
	}
	skipped.Failed = &v1alpha1.ClaimFailure{
		Reason:  v1alpha1.ReasonDrainTimeout,
		Message: "the drain of Node worker-1 was not done in time; the node is left as it was, and the rollout goes on without it",
		Time:    before(5 * time.Minute), Skipped: true,
	}
	other := v1alpha1.Claim{Rollout: "Plan/system-upgrade/other", UID: "other", Since: before(time.Minute)}
	budget := v1alpha1.NodeDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "everything"},
		Spec:       v1alpha1.NodeDisruptionBudgetSpec{MaxUnavailable: ptr.To(intstr.FromInt(1)), Gates: &v1alpha1.Gates{Workloads: &v1alpha1.WorkloadsGate{}}},
		Status: v1alpha1.NodeDisruptionBudgetStatus{BlockedBy: []v1alpha1.BudgetBlock{
			{
				Gate:    v1alpha1.ReasonWorkloadsUnavailable,
				Message: "evicted from worker-3: ReplicaSet shop/cart-5d4f has 1 of 3 available; Deployment shop/cart has 1 of 3 available",
				Since:   before(4 * time.Minute),
			},
		}},
	}
	paused := func(p *upgradev1.Plan) { p.Spec.Strategy = &v1alpha1.Strategy{Paused: true} }
	for name, tc := range map[string]struct {
		plans   []upgradev1.Plan
		nodes   []corev1.Node
		budgets []v1alpha1.NodeDisruptionBudget
	}{
		"next": {plans: []upgradev1.Plan{whyPlan("agents")}, nodes: []corev1.Node{whyNode("worker-1")}},
		"waits": {
			plans:   []upgradev1.Plan{whyPlan("agents", paused)},
			nodes:   []corev1.Node{whyNode("worker-1", claimed(other)), whyNode("worker-2", func(n *corev1.Node) { n.Spec.Unschedulable = true })},
			budgets: []v1alpha1.NodeDisruptionBudget{budget},
		},
		"turn": {
			plans: []upgradev1.Plan{whyPlan("agents", func(p *upgradev1.Plan) {
				p.Status.Updating = []v1alpha1.UnitStatus{{
					Node: "worker-1", Phase: v1alpha1.PhaseDraining, Since: ptr.To(before(8 * time.Second)),
					Message: "1 pod left; pod shop/cart-0 is held by PodDisruptionBudget shop/cart: Cannot evict pod as it would violate the pod's disruption budget. " +
						"The disruption budget cart needs 2 healthy pods and has 2 currently",
				}}
			})},
			nodes: []corev1.Node{whyNode("worker-1", claimed(claim()), func(n *corev1.Node) {
				n.Spec.Unschedulable = true
				n.Annotations[v1alpha1.AnnotationCordonedBy] = "Plan/system-upgrade/agents"
				n.Annotations[v1alpha1.AnnotationEvicted] = `["ReplicaSet/shop/front-5d4f"]`
				n.Annotations[v1alpha1.AnnotationExcludedBy] = "Plan/system-upgrade/agents"
				n.Labels[corev1.LabelNodeExcludeBalancers] = ""
			})},
		},
		"failed":  {plans: []upgradev1.Plan{whyPlan("agents")}, nodes: []corev1.Node{whyNode("worker-1", claimed(failed))}},
		"skipped": {plans: []upgradev1.Plan{whyPlan("agents")}, nodes: []corev1.Node{whyNode("worker-1", claimed(skipped))}},
		"ill": {
			plans: []upgradev1.Plan{whyPlan("agents", func(p *upgradev1.Plan) {
				p.Status.SetCondition(upgradev1.Condition{Type: upgradev1.ConditionStalled, Status: metav1.ConditionTrue, Message: "spec.window is invalid, invalid weekday: someday"}, before(time.Hour).Time)
				p.Status.SetCondition(upgradev1.Condition{Type: upgradev1.ConditionComplete, Status: metav1.ConditionFalse, Reason: upgradev1.ReasonNotReady}, before(time.Hour).Time)
			})},
			nodes: []corev1.Node{whyNode("worker-1", func(n *corev1.Node) {
				n.Annotations[v1alpha1.AnnotationClaims] = "?"
				n.Status.Conditions = []corev1.NodeCondition{
					{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, LastTransitionTime: before(time.Minute), Message: "Kubelet stopped posting node status."},
					{Type: corev1.NodeDiskPressure, Status: corev1.ConditionTrue, LastTransitionTime: before(time.Minute), Message: "kubelet has disk pressure"},
				}
				n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoSchedule}}
			})},
		},
		"opted-out": {
			plans: []upgradev1.Plan{whyPlan("agents")},
			nodes: []corev1.Node{whyNode("worker-1", func(n *corev1.Node) { n.Labels[upgradev1.LabelPlanHash("agents")] = upgradev1.LabelDisabled })},
		},
		"unselected": {
			plans: []upgradev1.Plan{whyPlan("agents", func(p *upgradev1.Plan) { p.Spec.NodeSelector.MatchLabels = map[string]string{"pool": "blue"} })},
			nodes: []corev1.Node{whyNode("worker-1")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, ok := view.See(tc.plans, tc.nodes, tc.budgets, now).Why("worker-1")
			if !ok {
				t.Fatal("there is no such node")
			}
			golden(t, "why/"+name, explain(&w, now).Text(0, false))
		})
	}
}
