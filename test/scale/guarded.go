// SPDX-License-Identifier: Apache-2.0

package main

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"moult.dev/moult/api/v1alpha1"
)

// withGuards is a Plan with a strategy and budgets that let it go as fast as the plain one: what they cost is what it takes
// to decide and to look.
func (b *bench) withGuards(alerts *prometheus) subject {
	parts := waves(b.size, b.concurrency)
	strategy := &v1alpha1.Strategy{
		Order:       []v1alpha1.Order{{By: v1alpha1.OrderControlPlaneLast}, {By: v1alpha1.OrderZone}, {By: v1alpha1.OrderFewestEvictionsFirst}},
		MaxFailures: ptr.To(intstr.FromString("5%")),
		Retries:     &v1alpha1.Retries{Limit: 2},
		TurnTimeout: &metav1.Duration{Duration: 10 * time.Minute},
	}
	for i, size := range parts {
		wave := v1alpha1.Wave{Size: ptr.To(intstr.FromInt(size))}
		if i == len(parts)-1 {
			wave.Size = ptr.To(intstr.FromString("100%")) // of what is left
		}
		strategy.Waves = append(strategy.Waves, wave)
	}
	// There is no such pod.
	blocks := metav1.LabelSelector{MatchLabels: map[string]string{"scale.moult.dev/blocks": "true"}}
	return subject{
		name:     "guarded",
		strategy: strategy,
		limit:    b.concurrency,
		parts:    parts,
		alerts:   alerts,
		budgets: []*v1alpha1.NodeDisruptionBudget{{
			ObjectMeta: metav1.ObjectMeta{Name: "gates"},
			Spec: v1alpha1.NodeDisruptionBudgetSpec{
				MaxUnavailable: ptr.To(intstr.FromInt(b.concurrency)),
				TopologyKey:    corev1.LabelTopologyZone,
				MaxDomains:     ptr.To[int32](100),
				Gates: &v1alpha1.Gates{
					Workloads: &v1alpha1.WorkloadsGate{},
					Pods:      []v1alpha1.PodsGate{{Selector: blocks, Scope: v1alpha1.PodsInCluster}, {Selector: blocks, Scope: v1alpha1.PodsOnNode}},
					Alerts:    &v1alpha1.AlertsGate{URL: alerts.server.URL, IntervalSeconds: ptr.To[int32](1)},
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
			Spec: v1alpha1.NodeDisruptionBudgetSpec{
				// It opens anew before it closes.
				Windows: []v1alpha1.Window{{Schedule: "@hourly", Duration: metav1.Duration{Duration: 2 * time.Hour}}},
			},
		}},
	}
}

// waves are the sizes of a canary, of about a tenth, and of the rest. The first two are multiples of the concurrency, so
// that in the ideal they take no longer than the same nodes would without waves.
func waves(nodes, concurrency int) []int {
	var sizes []int
	for _, size := range []int{concurrency, roundsOf((nodes+9)/10, concurrency) * concurrency, nodes} {
		if size = min(size, nodes); size > 0 {
			sizes = append(sizes, size)
			nodes -= size
		}
	}
	return sizes
}
