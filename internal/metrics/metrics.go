// SPDX-License-Identifier: Apache-2.0

// Package metrics holds every collector of Moult.
package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"moult.dev/moult/api/v1alpha1"
)

var rolloutLabels = []string{"kind", "namespace", "name"}

var (
	units = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "moult_units",
		Help: "Nodes of a rollout by the state of their unit.",
	}, append(rolloutLabels, "state"))

	waiting = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "moult_units_waiting",
		Help: "Nodes of a rollout that need a turn and are not started, by the reason.",
	}, append(rolloutLabels, "reason"))

	turns = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "moult_turn_duration_seconds",
		Help:    "How long a node's turn took, from claim to release or failure, by result.",
		Buckets: []float64{1, 2, 5, 10, 30, 60, 120, 300, 600, 1200, 3600, 7200},
	}, append(rolloutLabels, "result"))

	reconcileErrors = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "moult_reconcile_errors_total",
		Help: "Reconciles of a rollout that ended in an error.",
	}, rolloutLabels)
)

func init() { //nolint:gochecknoinits // The registry of controller-runtime is global, and so are its collectors.
	metrics.Registry.MustRegister(units, waiting, turns, reconcileErrors, budgetMatched, budgetUnavailable, budgetAllowed, budgetBlocked)
}

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
	waiting.DeletePartialMatch(r.labels())
	for reason, n := range reasons {
		waiting.WithLabelValues(r.values(string(reason))...).Set(float64(n))
	}
}

// The results of a turn.
const (
	TurnUpdated = "updated"
	TurnFailed  = "failed"
)

// ObserveTurn notes how long a turn took.
func ObserveTurn(r Rollout, result string, took time.Duration) {
	turns.WithLabelValues(r.values(result)...).Observe(took.Seconds())
}

// CountError notes a reconcile that failed.
func CountError(r Rollout) { reconcileErrors.WithLabelValues(r.values()...).Inc() }

// Forget drops a rollout that is gone.
func Forget(r Rollout) {
	for _, vec := range []interface {
		DeletePartialMatch(labels prometheus.Labels) int
	}{units, waiting, turns, reconcileErrors} {
		vec.DeletePartialMatch(r.labels())
	}
}
