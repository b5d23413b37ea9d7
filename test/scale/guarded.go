// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/api/v1alpha1"
)

// guards is a Plan with a strategy and budgets that never delay it. What it takes longer than the plain one is the cost of
// deciding and looking.
func (r *planRun) guards() *subject {
	var asked atomic.Int64
	// A Prometheus without alerts.
	prometheus := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"status":"success","data":{"resultType":"vector","result":[]}}`)
	}))
	r.stops = append(r.stops, prometheus.Close)
	parts := waves(r.size, r.concurrency)
	strategy := &v1alpha1.Strategy{
		Order:       []v1alpha1.Order{{By: v1alpha1.OrderControlPlaneLast}, {By: v1alpha1.OrderZone}, {By: v1alpha1.OrderFewestEvictionsFirst}},
		MaxFailures: ptr.To(intstr.FromString("5%")),
		Retries:     &v1alpha1.Retries{Limit: 2},
		TurnTimeout: &metav1.Duration{Duration: 10 * time.Minute},
	}
	for i, size := range parts {
		wave := v1alpha1.Wave{Size: ptr.To(intstr.FromInt(size))}
		if i == len(parts)-1 {
			wave.Size = ptr.To(intstr.FromString("100%")) // of the rest
		}
		strategy.Waves = append(strategy.Waves, wave)
	}
	// No pod has this label.
	blocks := metav1.LabelSelector{MatchLabels: map[string]string{"scale.moult.dev/blocks": "true"}}
	budgets := []*v1alpha1.NodeDisruptionBudget{{
		ObjectMeta: metav1.ObjectMeta{Name: "gates"},
		Spec: v1alpha1.NodeDisruptionBudgetSpec{
			MaxUnavailable: ptr.To(intstr.FromInt(r.concurrency)),
			TopologyKey:    corev1.LabelTopologyZone,
			MaxDomains:     ptr.To[int32](100),
			Gates: &v1alpha1.Gates{
				Workloads: &v1alpha1.WorkloadsGate{},
				Pods:      []v1alpha1.PodsGate{{Selector: blocks, Scope: v1alpha1.PodsInCluster}, {Selector: blocks, Scope: v1alpha1.PodsOnNode}},
				Alerts:    &v1alpha1.AlertsGate{URL: prometheus.URL, IntervalSeconds: ptr.To[int32](1)},
				Nodes: &v1alpha1.NodesGate{
					Conditions: []v1alpha1.NodeConditionRequirement{
						{Type: string(corev1.NodeMemoryPressure), Status: metav1.ConditionFalse},
						{Type: string(corev1.NodeDiskPressure), Status: metav1.ConditionFalse},
					},
					AbsentTaints: []string{corev1.TaintNodeNetworkUnavailable, "readiness.k8s.io/*"},
				},
			},
		},
	}, {
		ObjectMeta: metav1.ObjectMeta{Name: "window"},
		// The window opens again before it closes.
		Spec: v1alpha1.NodeDisruptionBudgetSpec{Windows: []v1alpha1.Window{{Schedule: "@hourly", Duration: metav1.Duration{Duration: 2 * time.Hour}}}},
	}}
	plan := r.newPlan(guardedName, r.nodes)
	plan.Spec.Strategy = strategy
	s := r.subject(guardedName, nil, r.concurrency, plan)
	s.stages[0].ideal = 0
	for _, size := range parts {
		s.stages[0].ideal += inRounds(size, r.concurrency, r.podSeconds)
	}
	for _, budget := range budgets {
		s.others = append(s.others, budget)
	}
	check := s.check
	s.check = func(ctx context.Context, result *result) error {
		if w := plan.Status.Wave; w == nil || w.State != v1alpha1.WaveComplete || w.Number != w.Of || int(w.Of) != len(parts) {
			result.wrong("the Plan's wave is %+v, and should be the last of %d", w, len(parts))
		}
		for _, budget := range budgets {
			if err := r.client.Get(ctx, client.ObjectKeyFromObject(budget), budget); err != nil {
				return err
			}
			if is := &budget.Status; int(is.Matched) != r.size || is.Unavailable != 0 || !meta.IsStatusConditionTrue(is.Conditions, v1alpha1.ConditionReady) {
				result.wrong("budget %s: %+v", budget.Name, is)
			}
		}
		if asked.Load() == 0 {
			result.wrong("the operator did not ask for alerts")
		}
		return check(ctx, result)
	}
	return s
}

// waves are the sizes of a canary, of about a tenth, and of the rest. The first two are multiples of the concurrency, so
// that ideally they take no longer than the same nodes without waves.
func waves(nodes, concurrency int) []int {
	var sizes []int
	for _, size := range []int{concurrency, rounds((nodes+9)/10, concurrency) * concurrency, nodes} {
		if size = min(size, nodes); size > 0 {
			sizes = append(sizes, size)
			nodes -= size
		}
	}
	return sizes
}
