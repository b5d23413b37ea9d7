// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"cmp"
	"context"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
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

// Two Plans and a person share one budget: one node at a time is unavailable, though each Plan alone would take three.
func TestBudgetIsShared(t *testing.T) {
	t.Parallel()
	names := takeSimulated(t, 3)
	createBudget(t, newBudget(t, "shared"))
	patchNode(t, names[1], map[string]any{"spec": map[string]any{"unschedulable": true}})
	budget(t, "shared", "shows the cordoned node", func(s *v1alpha1.NodeDisruptionBudgetStatus) bool {
		return s.Matched == 3 && s.Unavailable == 1 && s.Allowed != nil && *s.Allowed == 0 &&
			len(s.Holders) == 1 && s.Holders[0].Node == names[1] && s.Holders[0].Cause == v1alpha1.CauseUnschedulable
	})
	plans := []string{"shares-1", "shares-2"}
	for _, name := range plans {
		p := newPlan(t, name, "true")
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
	var jobs []batchv1.Job
	for _, name := range plans {
		complete(t, name)
		jobs = append(jobs, jobsOf(t, name)...)
	}
	// Times are whole seconds: the next Job is made in the second in which the last one ends, or later.
	slices.SortFunc(jobs, func(a, b batchv1.Job) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), a.Status.CompletionTime.Compare(b.Status.CompletionTime.Time))
	})
	if len(jobs) != 6 {
		t.Errorf("%d Jobs, want 6", len(jobs))
	}
	for i := 1; i < len(jobs); i++ {
		if before := &jobs[i-1]; jobs[i].CreationTimestamp.Time.Before(before.Status.CompletionTime.Time) {
			t.Errorf("Job %s was made at %s, before %s ended at %s", jobs[i].Name, jobs[i].CreationTimestamp, before.Name, before.Status.CompletionTime)
		}
	}
	for _, name := range names {
		released(t, name, false)
	}
	budget(t, "shared", "is free again", func(s *v1alpha1.NodeDisruptionBudgetStatus) bool {
		return s.Unavailable == 0 && s.Allowed != nil && *s.Allowed == 1 && len(s.Holders) == 0
	})
}

// Everything in a budget that holds a node back does, one after the other, and a Plan says which.
func TestBudgetGates(t *testing.T) {
	t.Parallel()
	names := takeSimulated(t, 2)
	var silent atomic.Bool
	const token = "e2e-prometheus"
	prometheus := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+token {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		result := `{"metric":{"__name__":"ALERTS","alertname":"DiskFull","alertstate":"firing"},"value":[1700000000,"1"]}`
		if silent.Load() {
			result = ""
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"status":"success","data":{"resultType":"vector","result":[%s]}}`, result)
	}))
	defer prometheus.Close()
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: operators, Name: "moult-prometheus"},
		Data: map[string][]byte{
			"url": []byte(prometheus.URL), "token": []byte("another"),
			"ca.crt": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: prometheus.Certificate().Raw}),
		},
	}
	if err := world.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { deleteNow(t, secret) })
	b := newBudget(t, "gated")
	b.Spec.Paused = true
	b.Spec.Gates = &v1alpha1.Gates{
		Pods: []v1alpha1.PodsGate{{
			Selector:          metav1.LabelSelector{MatchLabels: map[string]string{"batch": labelOf(t)}},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: metav1.NamespaceDefault}},
		}},
		Nodes:  &v1alpha1.NodesGate{AbsentTaints: []string{"readiness.k8s.io/*"}},
		Alerts: &v1alpha1.AlertsGate{URL: prometheus.URL, IntervalSeconds: ptr.To[int32](1), SecretName: secret.Name},
	}
	createBudget(t, b)
	taint := map[string]any{"spec": map[string]any{"taints": []map[string]any{{"key": "readiness.k8s.io/network", "effect": "PreferNoSchedule"}}}}
	patchNode(t, names[1], taint)
	untaint := map[string]any{"spec": map[string]any{"taints": nil}}
	t.Cleanup(func() { patchNode(t, names[1], untaint) })
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "gated-batch", Namespace: metav1.NamespaceDefault, Labels: map[string]string{"batch": labelOf(t)}},
		Spec:       corev1.PodSpec{NodeName: names[0], Containers: []corev1.Container{{Name: "work", Image: "example.com/work"}}},
	}
	if err := world.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { deleteNow(t, pod) })

	p := newPlan(t, "gated", "true")
	create(t, p)
	waits(t, p.Name, v1alpha1.ReasonBudgetPaused)
	says(t, []string{"status", p.Name}, b.Name, "paused")
	says(t, []string{"resume", "ndb/" + b.Name}, "nodedisruptionbudget.moult.dev/gated resumed")
	budget(t, b.Name, "names the Secret", func(s *v1alpha1.NodeDisruptionBudgetStatus) bool {
		return slices.ContainsFunc(s.BlockedBy, func(by v1alpha1.BudgetBlock) bool {
			return strings.HasPrefix(by.Message, "spec.gates.alerts.secretName: Prometheus answers 401")
		})
	})
	secret.Data["token"] = []byte(token)
	if err := world.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	if message := waits(t, p.Name, v1alpha1.ReasonAlertsActive); !strings.Contains(message, "DiskFull") {
		t.Errorf("it says %q", message)
	}
	silent.Store(true)
	if message := waits(t, p.Name, v1alpha1.ReasonBudgetExhausted); !strings.Contains(message, "readiness.k8s.io/network") {
		t.Errorf("it says %q", message)
	}
	if jobs := jobsOf(t, p.Name); len(jobs) > 0 {
		t.Errorf("%d Jobs were made", len(jobs))
	}
	patchNode(t, names[1], untaint)
	status(t, p.Name, "has updated the node without the pod", func(s *upgradev1.PlanStatus) bool {
		return s.Counts.Updated == 1 && len(s.Waiting) == 1 && s.Waiting[0].Node == names[0] && s.Waiting[0].Reason == v1alpha1.ReasonPodsBlock
	})
	deleteNow(t, pod)
	complete(t, p.Name)
}
