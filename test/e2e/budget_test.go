// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/hack/image"
)

// newBudget is a budget of one node over the test's nodes.
func newBudget(t *testing.T, name string) *v1alpha1.NodeDisruptionBudget {
	return &v1alpha1.NodeDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.NodeDisruptionBudgetSpec{
			Selector:       &metav1.LabelSelector{MatchLabels: map[string]string{target: labelOf(t)}},
			MaxUnavailable: ptr.To(intstr.FromInt32(1)),
		},
	}
}

// createBudget makes a budget that goes when the test ends.
func createBudget(t *testing.T, b *v1alpha1.NodeDisruptionBudget) {
	t.Helper()
	if err := world.Create(t.Context(), b); err != nil {
		t.Fatalf("creating budget: %v", err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			out, err := kubectl(context.WithoutCancel(t.Context()), "get", "ndb", b.Name, "-o", "yaml")
			t.Logf("%v\n%s", err, out)
		}
		if err := client.IgnoreNotFound(world.Delete(context.WithoutCancel(t.Context()), b)); err != nil {
			t.Errorf("deleting budget: %v", err)
		}
	})
}

// budget waits until a budget's status is as wanted.
func budget(t *testing.T, name, what string, holds func(*v1alpha1.NodeDisruptionBudgetStatus) bool) {
	t.Helper()
	eventually(t, "budget "+name+" "+what, func(ctx context.Context) (string, bool) {
		var b v1alpha1.NodeDisruptionBudget
		err := world.Get(ctx, client.ObjectKey{Name: name}, &b)
		return fmt.Sprintf("%+v %v", b.Status, err), err == nil && b.Status.ObservedGeneration == b.Generation && holds(&b.Status)
	})
}

// waits returns when a Plan's first waiting node has this reason, with what is said of it.
func waits(t *testing.T, plan string, reason v1alpha1.Reason) string {
	t.Helper()
	p := status(t, plan, "waits for "+string(reason), func(s *upgradev1.PlanStatus) bool {
		return len(s.Waiting) > 0 && s.Waiting[0].Reason == reason
	})
	return p.Status.Waiting[0].Message
}

// unavailable names those of the test's nodes that are claimed or cordoned. One may be not ready for a moment by itself.
func unavailable(ctx context.Context, t *testing.T) ([]string, error) {
	t.Helper()
	var all corev1.NodeList
	if err := world.List(ctx, &all, client.MatchingLabels{target: labelOf(t)}); err != nil {
		return nil, err
	}
	var names []string
	for i := range all.Items {
		n := &all.Items[i]
		if n.Spec.Unschedulable || n.Annotations[v1alpha1.AnnotationClaims] != "" {
			names = append(names, n.Name)
		}
	}
	return names, nil
}

func isComplete(s *upgradev1.PlanStatus) bool {
	c := s.Condition(upgradev1.ConditionComplete)
	return c != nil && c.Status == metav1.ConditionTrue
}

// Two Plans and a person share one budget: whatever each of them alone would allow, one node at a time is unavailable.
func TestBudgetIsShared(t *testing.T) {
	t.Parallel()
	names := take(t, 3)
	createBudget(t, newBudget(t, "shared"))
	patchNode(t, names[1], map[string]any{"spec": map[string]any{"unschedulable": true}})
	budget(t, "shared", "shows who has it", func(s *v1alpha1.NodeDisruptionBudgetStatus) bool {
		return s.Matched == 3 && s.Unavailable == 1 && s.Allowed != nil && *s.Allowed == 0 &&
			len(s.Holders) == 1 && s.Holders[0].Node == names[1] && s.Holders[0].Cause == v1alpha1.CauseUnschedulable
	})
	plans := []string{"shares-1", "shares-2"}
	for _, name := range plans {
		p := newPlan(t, name, "sleep 1")
		p.Spec.Cordon = true
		create(t, p)
	}
	for _, name := range plans {
		message := waits(t, name, v1alpha1.ReasonBudgetExhausted)
		if !strings.Contains(message, "budget shared") || !strings.Contains(message, names[1]) {
			t.Errorf("plan %s says %q", name, message)
		}
		if jobs := jobsOf(t, name); len(jobs) > 0 {
			t.Errorf("plan %s has made a Job on %s\n%s", name, jobs[0].Labels[upgradev1.LabelNode], describe(get(t, name)))
		}
	}
	patchNode(t, names[1], map[string]any{"spec": map[string]any{"unschedulable": nil}})
	throughout(t, "one node at a time", func(ctx context.Context) error {
		if now, err := unavailable(ctx, t); err != nil || len(now) > 1 {
			return fmt.Errorf("unavailable are %v, %w", now, err)
		}
		return nil
	}, func(context.Context) (string, bool) {
		one, two := get(t, plans[0]), get(t, plans[1])
		return describe(one) + describe(two), isComplete(&one.Status) && isComplete(&two.Status)
	})
	for _, name := range names {
		released(t, name, false)
	}
	budget(t, "shared", "is free again", func(s *v1alpha1.NodeDisruptionBudgetStatus) bool {
		return s.Unavailable == 0 && s.Allowed != nil && *s.Allowed == 1 && len(s.Holders) == 0
	})
}

// What was evicted is not available again: the next node waits, with that reason, and goes on when it is.
func TestBudgetWaitsForWorkloads(t *testing.T) {
	t.Parallel()
	two := takeMachines(t, 2)
	for _, m := range two {
		if out, err := m.Exec(t.Context(), "sh", "-c", "mkdir -p /var/lib/gate && touch /var/lib/gate/ready"); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	labels := map[string]string{"app": "gated"}
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "gated", Namespace: metav1.NamespaceDefault, Labels: labels},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](1),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					TerminationGracePeriodSeconds: ptr.To[int64](1),
					NodeSelector:                  map[string]string{target: labelOf(t)},
					Volumes: []corev1.Volume{{Name: "gate", VolumeSource: corev1.VolumeSource{
						HostPath: &corev1.HostPathVolumeSource{Path: "/var/lib/gate"},
					}}},
					Containers: []corev1.Container{{
						Name: "sleep", Image: image.Busybox, ImagePullPolicy: corev1.PullNever, Command: []string{"sleep", "3600"},
						VolumeMounts: []corev1.VolumeMount{{Name: "gate", MountPath: "/gate"}},
						ReadinessProbe: &corev1.Probe{PeriodSeconds: 1, FailureThreshold: 1, ProbeHandler: corev1.ProbeHandler{
							Exec: &corev1.ExecAction{Command: []string{"test", "-e", "/gate/ready"}},
						}},
					}},
				},
			},
		},
	}
	if err := world.Create(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = world.Delete(context.WithoutCancel(t.Context()), d, client.PropagationPolicy(metav1.DeletePropagationBackground))
	})
	isAvailable := func(ctx context.Context) (string, bool) {
		err := world.Get(ctx, client.ObjectKeyFromObject(d), d)
		return fmt.Sprint(d.Status, err), err == nil && d.Status.AvailableReplicas == 1
	}
	eventually(t, "the deployment is available", isAvailable)
	holder, other := two[0], two[1]
	if len(podsOn(t, d.Name, holder.Name())) == 0 {
		holder, other = other, holder
	}
	if out, err := other.Exec(t.Context(), "rm", "/var/lib/gate/ready"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	b := newBudget(t, "gated")
	b.Spec.Gates = &v1alpha1.Gates{Workloads: &v1alpha1.WorkloadsGate{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "nothing"}}}}
	createBudget(t, b)
	p := newPlan(t, "gated", "true")
	p.Spec.Drain = &upgradev1.DrainSpec{}
	p.Spec.Strategy = &v1alpha1.Strategy{
		Order: []v1alpha1.Order{{By: v1alpha1.OrderLabel, Key: corev1.LabelHostname, Values: []string{holder.Name(), other.Name()}}},
	}
	create(t, p)
	// The gate selects nothing, but what was evicted counts always.
	status(t, p.Name, "waits for what was evicted", func(s *upgradev1.PlanStatus) bool {
		return s.Counts.Updated == 1 && len(s.Waiting) == 1 && s.Waiting[0].Reason == v1alpha1.ReasonWorkloadsUnavailable &&
			strings.Contains(s.Waiting[0].Message, "gated-") && strings.Contains(s.Waiting[0].Message, holder.Name())
	})
	released(t, holder.Name(), false)
	budget(t, "gated", "says what blocks", func(s *v1alpha1.NodeDisruptionBudgetStatus) bool {
		return len(s.BlockedBy) == 1 && s.BlockedBy[0].Gate == v1alpha1.ReasonWorkloadsUnavailable && !s.BlockedBy[0].Since.IsZero()
	})
	if jobs := jobsOf(t, p.Name); len(jobs) != 1 {
		t.Errorf("%d Jobs were made, want that of %s alone", len(jobs), holder.Name())
	}
	if out, err := other.Exec(t.Context(), "touch", "/var/lib/gate/ready"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	complete(t, p.Name)
	released(t, other.Name(), false)
	eventually(t, "nothing is recorded as evicted any more", func(context.Context) (string, bool) {
		recorded := node(t, holder.Name()).Annotations[v1alpha1.AnnotationEvicted] + node(t, other.Name()).Annotations[v1alpha1.AnnotationEvicted]
		return recorded, recorded == ""
	})
}

// Prometheus fires, and nothing is started; it does not answer, and nothing is started either.
func TestBudgetWaitsForAlerts(t *testing.T) {
	t.Parallel()
	take(t, 1)
	var alert, down atomic.Bool
	alert.Store(true)
	prometheus := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if down.Load() {
			http.Error(w, "no", http.StatusServiceUnavailable)
			return
		}
		result := ""
		if alert.Load() {
			result = `{"metric":{"__name__":"ALERTS","alertname":"DiskFull","alertstate":"firing"},"value":[1700000000,"1"]}`
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"status":"success","data":{"resultType":"vector","result":[%s]}}`, result)
	}))
	defer prometheus.Close()
	b := newBudget(t, "alerted")
	b.Spec.Gates = &v1alpha1.Gates{Alerts: &v1alpha1.AlertsGate{URL: prometheus.URL, IntervalSeconds: ptr.To[int32](1)}}
	createBudget(t, b)
	p := newPlan(t, "alerted", "true")
	create(t, p)
	if message := waits(t, p.Name, v1alpha1.ReasonAlertsActive); !strings.Contains(message, "DiskFull") {
		t.Errorf("it says %q", message)
	}
	down.Store(true)
	waits(t, p.Name, v1alpha1.ReasonAlertsUnreachable)
	if jobs := jobsOf(t, p.Name); len(jobs) > 0 {
		t.Errorf("%d Jobs were made", len(jobs))
	}
	alert.Store(false)
	down.Store(false)
	complete(t, p.Name)
}

// A switch stops everything, and a pod on a node keeps that node from being taken, and no other.
func TestBudgetPausedAndBlockedByPods(t *testing.T) {
	t.Parallel()
	names := takeSimulated(t, 2)
	b := newBudget(t, "paused")
	b.Spec.Paused = true
	b.Spec.Gates = &v1alpha1.Gates{Pods: []v1alpha1.PodsGate{{Selector: metav1.LabelSelector{MatchLabels: map[string]string{"batch": labelOf(t)}}}}}
	createBudget(t, b)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "paused-batch", Namespace: metav1.NamespaceDefault, Labels: map[string]string{"batch": labelOf(t)}},
		Spec:       corev1.PodSpec{NodeName: names[0], Containers: []corev1.Container{{Name: "work", Image: "example.com/work"}}},
	}
	if err := world.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	gone := func() {
		if err := client.IgnoreNotFound(world.Delete(context.WithoutCancel(t.Context()), pod, client.GracePeriodSeconds(0))); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(gone)
	p := newPlan(t, "paused", "true")
	create(t, p)
	waits(t, p.Name, v1alpha1.ReasonBudgetPaused)
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"paused":false}}`))
	if err := world.Patch(t.Context(), b, patch); err != nil {
		t.Fatal(err)
	}
	status(t, p.Name, "has updated the other node", func(s *upgradev1.PlanStatus) bool {
		return s.Counts.Updated == 1 && len(s.Waiting) == 1 && s.Waiting[0].Node == names[0] && s.Waiting[0].Reason == v1alpha1.ReasonPodsBlock
	})
	gone()
	complete(t, p.Name)
}

// A node that is not healthy by the budget's own rules uses it up, and a node counts as updated only when it is.
func TestBudgetNodesGate(t *testing.T) {
	t.Parallel()
	names := takeSimulated(t, 2)
	b := newBudget(t, "healthy")
	b.Spec.Gates = &v1alpha1.Gates{Nodes: &v1alpha1.NodesGate{AbsentTaints: []string{"readiness.k8s.io/*"}}}
	createBudget(t, b)
	taint := map[string]any{"spec": map[string]any{"taints": []map[string]any{{"key": "readiness.k8s.io/network", "effect": "PreferNoSchedule"}}}}
	patchNode(t, names[0], taint)
	untaint := map[string]any{"spec": map[string]any{"taints": nil}}
	t.Cleanup(func() { patchNode(t, names[0], untaint) })
	p := newPlan(t, "healthy", "true")
	create(t, p)
	if message := waits(t, p.Name, v1alpha1.ReasonBudgetExhausted); !strings.Contains(message, "readiness.k8s.io/network") {
		t.Errorf("it says %q", message)
	}
	patchNode(t, names[0], untaint)
	complete(t, p.Name)
}

// A canary that fails halts the rollout, and a repaired one lets it go on: by itself after the soak, then when approved.
func TestWaves(t *testing.T) {
	t.Parallel()
	names := take(t, 3)
	canary := names[2]
	p := newPlan(t, "waves", "exit 1")
	p.Spec.Strategy = &v1alpha1.Strategy{
		MaxFailures: ptr.To(intstr.FromString("100%")), // It does not help the canary.
		Waves: []v1alpha1.Wave{
			{
				Name: "canary", NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelHostname: canary}},
				Soak: &metav1.Duration{Duration: 3 * time.Second},
			},
			{Size: ptr.To(intstr.FromInt32(1)), Approval: v1alpha1.ApprovalManual},
		},
	}
	create(t, p)
	got := status(t, p.Name, "is halted", func(s *upgradev1.PlanStatus) bool {
		stalled := s.Condition(upgradev1.ConditionStalled)
		return s.Wave != nil && s.Wave.State == v1alpha1.WaveHalted && stalled != nil && stalled.Status == metav1.ConditionTrue
	})
	if len(got.Status.Failed) != 1 || got.Status.Failed[0].Node != canary || len(got.Status.Waiting) != 2 || got.Status.Waiting[0].Reason != v1alpha1.ReasonHalted {
		t.Errorf("got %s", describe(got))
	}
	if n := len(jobsOf(t, p.Name)); n != 1 {
		t.Errorf("%d Jobs were made, want that of the canary alone", n)
	}
	edit(t, p.Name, func(p *upgradev1.Plan) { p.Spec.Upgrade.Args = []string{"true"} })
	waiting := status(t, p.Name, "waits for the second wave's approval", func(s *upgradev1.PlanStatus) bool {
		return s.Wave != nil && s.Wave.Number == 2 && s.Wave.State == v1alpha1.WaveWaitingForApproval
	})
	var done, next time.Time
	for _, j := range jobsOf(t, p.Name) {
		switch made := j.CreationTimestamp.Time; {
		case j.Labels[upgradev1.LabelNode] != canary:
			if next.IsZero() || made.Before(next) {
				next = made
			}
		case j.Status.CompletionTime != nil:
			done = j.Status.CompletionTime.Time
		}
	}
	// Times are whole seconds.
	if soaked := next.Sub(done); done.IsZero() || soaked < 2*time.Second {
		t.Errorf("the canary was done at %s, and the next wave begun at %s", done, next)
	}
	w := waiting.Status.Wave
	if w.Updated != 1 || w.ApproveWith == "" || len(waiting.Status.Waiting) != 1 || waiting.Status.Waiting[0].Reason != v1alpha1.ReasonWaitingForApproval {
		t.Errorf("got %s", describe(waiting))
	}
	approve := func(value string) {
		edit(t, p.Name, func(p *upgradev1.Plan) {
			if p.Annotations == nil {
				p.Annotations = map[string]string{}
			}
			p.Annotations[v1alpha1.AnnotationApprove] = value
		})
	}
	approve("canary@" + strings.TrimPrefix(w.ApproveWith, w.Name+"@")) // Of another wave.
	waits(t, p.Name, v1alpha1.ReasonWaitingForApproval)
	if n := len(jobsOf(t, p.Name)); n > 3 { // The failed one of the canary may still be there.
		t.Errorf("%d Jobs were made", n)
	}
	approve(w.ApproveWith)
	complete(t, p.Name)
	for _, name := range names {
		released(t, name, false)
	}
}

// A node that can't be drained in time is given back as it was, and the rollout goes on without it.
func TestPlanSkipsWhatCannotBeDrained(t *testing.T) {
	t.Parallel()
	two := takeMachines(t, 2)
	d := deploy(t, "undrainable", 1, 1)
	holder, other := two[0], two[1]
	if len(podsOn(t, d.Name, holder.Name())) == 0 {
		holder, other = other, holder
	}
	p := newPlan(t, "skips", "echo ran >> /host/var/skips")
	p.Spec.Concurrency = 1
	p.Spec.Drain = &upgradev1.DrainSpec{Timeout: ptr.To(intstr.FromString("3s")), OnTimeout: "Skip"}
	p.Spec.Strategy = &v1alpha1.Strategy{
		MaxFailures: ptr.To(intstr.FromInt32(0)), // One that is skipped is no failure.
		Order:       []v1alpha1.Order{{By: v1alpha1.OrderLabel, Key: corev1.LabelHostname, Values: []string{holder.Name()}}},
	}
	create(t, p)
	status(t, p.Name, "goes on without the node", func(s *upgradev1.PlanStatus) bool {
		return s.Counts.Updated == 1 && s.Counts.Failed == 1 && s.Failed[0].Node == holder.Name() && s.Failed[0].Reason == v1alpha1.ReasonDrainTimeout
	})
	n := node(t, holder.Name())
	if n.Spec.Unschedulable || n.Annotations[v1alpha1.AnnotationCordonedBy] != "" {
		t.Errorf("the node is not as it was: %+v %v", n.Spec, n.Annotations)
	}
	for _, c := range n.Status.Conditions {
		if (c.Type == corev1.NodeMaintenanceInProgress || c.Type == corev1.NodeDrainInProgress) && c.Status == corev1.ConditionTrue {
			t.Errorf("the node's condition %s is still True: %s", c.Type, c.Message)
		}
	}
	if got := lines(t, holder, "/var/skips"); got != nil {
		t.Errorf("the change ran without a drain: %v", got)
	}
	if got := lines(t, other, "/var/skips"); len(got) != 1 {
		t.Errorf("on the other node it ran %d times", len(got))
	}
}
