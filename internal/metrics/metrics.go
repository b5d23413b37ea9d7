// SPDX-License-Identifier: Apache-2.0

// Package metrics holds every collector of Moult.
package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"moult.dev/moult/api/v1alpha1"
)

// registry makes collectors in the registry of controller-runtime.
var registry = promauto.With(metrics.Registry)

func gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	return registry.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
}

func histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return registry.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
}

// forget removes the series with these labels.
func forget(labels prometheus.Labels, from ...interface {
	DeletePartialMatch(labels prometheus.Labels) int
},
) {
	for _, vec := range from {
		vec.DeletePartialMatch(labels)
	}
}

// seconds are the buckets of turns and of their phases.
var seconds = []float64{1, 2, 5, 10, 30, 60, 120, 300, 600, 1200, 3600, 7200}

var (
	units   = gauge("moult_units", "Nodes of a rollout by the state of their unit.", "kind", "namespace", "name", "state")
	waiting = gauge("moult_units_waiting", "Nodes of a rollout that need a turn and are not started, by the reason.",
		"kind", "namespace", "name", "reason")
	turns = histogram("moult_turn_duration_seconds", "How long a node's turn took, from claim to release or failure, by result.",
		seconds, "kind", "namespace", "name", "result")
	reconcileErrors = registry.NewCounterVec(prometheus.CounterOpts{
		Name: "moult_reconcile_errors_total", Help: "Reconciles of a rollout that ended in an error.",
	}, []string{"kind", "namespace", "name"})
)

// Rollout names a rollout in metrics.
type Rollout struct {
	Kind string
	types.NamespacedName
}

func (r Rollout) values(more ...string) []string {
	return append([]string{r.Kind, r.Namespace, r.Name}, more...)
}

func (r Rollout) labels() prometheus.Labels {
	return prometheus.Labels{"kind": r.Kind, "namespace": r.Namespace, "name": r.Name}
}

// SetUnits sets how many units are in each state, and how many wait for each reason.
func SetUnits(r Rollout, states map[v1alpha1.UnitState]int, reasons map[v1alpha1.Reason]int) {
	for _, s := range []v1alpha1.UnitState{
		v1alpha1.UnitOutdated, v1alpha1.UnitUpdating, v1alpha1.UnitSoaking, v1alpha1.UnitUpdated, v1alpha1.UnitFailed,
	} {
		units.WithLabelValues(r.values(string(s))...).Set(float64(states[s]))
	}
	forget(r.labels(), waiting)
	for reason, n := range reasons {
		waiting.WithLabelValues(r.values(string(reason))...).Set(float64(n))
	}
}

// The results of a turn.
const (
	TurnUpdated = "updated"
	TurnFailed  = "failed"
)

// ObserveTurn records how long a turn took.
func ObserveTurn(r Rollout, result string, took time.Duration) {
	turns.WithLabelValues(r.values(result)...).Observe(took.Seconds())
}

// CountError counts a failed reconcile.
func CountError(r Rollout) { reconcileErrors.WithLabelValues(r.values()...).Inc() }

// Forget removes a deleted rollout.
func Forget(r Rollout) { forget(r.labels(), units, waiting, turns, reconcileErrors) }
