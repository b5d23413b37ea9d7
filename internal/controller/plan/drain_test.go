// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
)

// podOn1 is a pod on node-1. One without a controller is not evicted unless that is forced.
func podOn1(name string, managed bool) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name), Finalizers: []string{"test/runs"}},
		Spec:       corev1.PodSpec{NodeName: "node-1"},
	}
	if managed {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: appsv1.SchemeGroupVersion.String(), Kind: "ReplicaSet", Name: "cart", Controller: ptr.To(true)}}
	}
	return p
}

// waits lets a container of the Job on node-1 wait for the operator.
func (c *cluster) waits(container string) {
	c.t.Helper()
	c.waitsOn("node-1", container)
}

func (c *cluster) waitsOn(node, container string) {
	c.t.Helper()
	j := c.jobs()[node]
	p := newPod("pod-"+j.Name, j.UID, metav1.NewTime(c.clock.Now()))
	p.Labels = map[string]string{upgradev1.LabelController: "x", upgradev1.LabelPlan: name, upgradev1.LabelNode: node}
	p.Spec.NodeName = node
	p.Status.InitContainerStatuses = []corev1.ContainerStatus{running(container, metav1.NewTime(c.clock.Now()))}
	if err := c.Client.Create(c.t.Context(), p); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) claim() v1alpha1.Claim {
	c.t.Helper()
	claims, err := v1alpha1.ParseClaims(c.node("node-1").Annotations)
	if err != nil || len(claims) != 1 {
		c.t.Fatalf("claims are %v, %v", claims, err)
	}
	return claims[0]
}

// evicted are the pods that were ordered to go, and end now.
func (c *cluster) evicted() (names []string) {
	c.t.Helper()
	var pods corev1.PodList
	if err := c.List(c.t.Context(), &pods, client.InNamespace("shop")); err != nil {
		c.t.Fatal(err)
	}
	for i := range pods.Items {
		if p := &pods.Items[i]; p.DeletionTimestamp != nil {
			names = append(names, p.Name)
			p.Finalizers = nil
			if err := c.Update(c.t.Context(), p); err != nil {
				c.t.Fatal(err)
			}
		}
	}
	c.PodsChanged("node-1")
	return names
}

func TestReconcileCordons(t *testing.T) {
	c := newCluster(t, newNode("node-1"), podOn1("cart-1", true), newPlan(func(p *upgradev1.Plan) { p.Spec.Cordon = true }))
	c.reconciles()
	if c.node("node-1").Spec.Unschedulable {
		t.Error("cordoned before the Job is prepared")
	}
	c.waits("cordon")
	c.reconciles()
	if n := c.node("node-1"); !n.Spec.Unschedulable || n.Annotations[v1alpha1.AnnotationCordonedBy] != self || c.claim().Cordoned == nil {
		t.Errorf("got %+v", n.Annotations)
	}
	if got := c.evicted(); len(got) > 0 {
		t.Errorf("evicted %v", got)
	}
	c.ends("node-1", succeeded)
	c.reconciles()
	if n := c.node("node-1"); n.Spec.Unschedulable || n.Annotations[v1alpha1.AnnotationCordonedBy] != "" {
		t.Error("it stays cordoned")
	}
	c.expect("", "", "node-1")
}

// The drain begins when its container runs, says in the node's conditions how it stands, and is recorded in the claim when it is over.
func TestReconcileDrains(t *testing.T) {
	c := newCluster(t, newNode("node-1"), podOn1("cart-1", true), newPlan(drains))
	c.reconciles()
	if got := c.evicted(); len(got) > 0 || c.node("node-1").Spec.Unschedulable {
		t.Errorf("evicted %v before the Job is prepared", got)
	}
	budget := &v1alpha1.NodeDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "workloads"}}
	budget.Spec.Gates = &v1alpha1.Gates{Workloads: &v1alpha1.WorkloadsGate{}} // It needs records and conditions of every drain.
	if err := c.Client.Create(t.Context(), budget); err != nil {
		t.Fatal(err)
	}
	c.waits("drain")
	c.reconciles()
	n := c.node("node-1")
	if !n.Spec.Unschedulable || n.Annotations[v1alpha1.AnnotationExcludedBy] != self || n.Annotations[v1alpha1.AnnotationEvicted] != `["ReplicaSet/shop/cart"]` {
		t.Errorf("got %v", n.Annotations)
	}
	if u := c.plan().Status.Updating; len(u) != 1 || u[0].Phase != v1alpha1.PhaseDraining || !strings.HasPrefix(u[0].Message, "1 pod left") {
		t.Errorf("updating are %+v", u)
	}
	if !inMaintenance(n) || c.claim().Drained != nil {
		t.Errorf("conditions are %+v, claim is %+v", n.Status.Conditions, c.claim())
	}
	c.Controller = c.newController(c.Events) // It goes on after a restart.
	if got := c.evicted(); len(got) != 1 {
		t.Errorf("evicted %v", got)
	}
	c.reconciles()
	if c.claim().Drained == nil {
		t.Error("the claim does not say that the drain is over")
	}
	c.ends("node-1", succeeded)
	c.reconciles()
	if n := c.node("node-1"); n.Spec.Unschedulable || inMaintenance(n) || n.Annotations[v1alpha1.AnnotationExcludedBy] != "" {
		t.Errorf("it is not released: %+v", n)
	}
	c.expect("", "", "node-1")
}

// A drain that can't be done fails the turn. The Job is stopped, and the node is as it was before. Its retry is another turn; a skipped node has none.
func TestReconcileDrainFails(t *testing.T) {
	timeout := ptr.To(intstr.FromString("5m"))
	for name, tc := range map[string]struct {
		drain   upgradev1.DrainSpec
		managed bool
		want    v1alpha1.Reason
		skipped bool
	}{
		"refused":        {want: v1alpha1.ReasonDrainRefused},
		"not in time":    {drain: upgradev1.DrainSpec{Timeout: timeout}, managed: true, want: v1alpha1.ReasonDrainTimeout},
		"halted":         {drain: upgradev1.DrainSpec{Timeout: timeout, OnTimeout: "Halt"}, managed: true, want: v1alpha1.ReasonDrainTimeout},
		"skipped":        {drain: upgradev1.DrainSpec{Timeout: timeout, OnTimeout: "Skip"}, managed: true, want: v1alpha1.ReasonDrainTimeout, skipped: true},
		"out of time":    {managed: true, want: v1alpha1.ReasonTurnTimeout},
		"the Job failed": {managed: true, want: v1alpha1.ReasonJobFailed},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, newNode("node-1"), podOn1("cart-1", tc.managed), newPlan(func(p *upgradev1.Plan) {
				p.Spec.Drain = &tc.drain
				p.Spec.Strategy = &v1alpha1.Strategy{
					TurnTimeout: &metav1.Duration{Duration: time.Hour}, Retries: &v1alpha1.Retries{Limit: 1, Backoff: &metav1.Duration{Duration: 2 * time.Minute}},
				}
			}))
			c.reconciles()
			c.waits("drain")
			c.reconciles()
			switch tc.want {
			case v1alpha1.ReasonDrainTimeout:
				c.passes(5 * time.Minute)
			case v1alpha1.ReasonTurnTimeout:
				c.passes(time.Hour)
			case v1alpha1.ReasonJobFailed:
				c.ends("node-1", failed)
			default: // refused at once
			}
			c.reconciles()
			c.expect("", "node-1", "")
			n, claim := c.node("node-1"), c.claim()
			if claim.Failed == nil || claim.Failed.Reason != tc.want || claim.Skipped() != tc.skipped {
				t.Fatalf("failed with %+v", claim.Failed)
			}
			if n.Spec.Unschedulable || inMaintenance(n) || n.Annotations[v1alpha1.AnnotationExcludedBy] != "" {
				t.Errorf("it is not as it was before: %+v", n)
			}
			c.passes(3 * time.Minute)
			c.reconciles()
			c.reconciles() // The Job of the last turn is deleted first.
			if again := c.claim(); (again.Failed != nil) != tc.skipped || (again.Turn == claim.Turn) != tc.skipped || again.Failures != 1 {
				t.Errorf("it is not tried again: %+v", again)
			}
		})
	}
}

// A turn that fails after its drain leaves the node cordoned for a person to look at it.
func TestReconcileFailsDrained(t *testing.T) {
	c := newCluster(t, newNode("node-1"), newPlan(drains))
	c.reconciles()
	c.waits("drain")
	c.reconciles()
	c.ends("node-1", failed)
	c.reconciles()
	if n := c.node("node-1"); !n.Spec.Unschedulable || c.claim().Failed == nil || c.claim().Drained == nil {
		t.Errorf("got %+v", c.claim())
	}
}

// inMaintenance reports whether a turn of the Plan has set conditions of the node.
func inMaintenance(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Reason == v1alpha1.ReasonMaintenance && c.Status == corev1.ConditionTrue && strings.HasPrefix(c.Message, self+": ")
	})
}
