// SPDX-License-Identifier: Apache-2.0

// Package metrics holds every collector of Moult.
package metrics

import (
	"runtime"
	"sync"
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

func counter(name, help string, labels ...string) *prometheus.CounterVec {
	return registry.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

func histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return registry.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
}

// vector is a collector with labels.
type vector interface{ DeletePartialMatch(prometheus.Labels) int }

// forget removes the series with these labels.
func forget(labels prometheus.Labels, from ...vector) {
	for _, vec := range from {
		vec.DeletePartialMatch(labels)
	}
}

// seconds are the buckets of turns and of their phases.
var seconds = []float64{1, 2, 5, 10, 30, 60, 120, 300, 600, 1200, 3600, 7200}

var (
	buildInfo = gauge("moult_build_info", "1, with the versions of the operator and of Go.", "version", "goversion")
	units     = gauge("moult_units", "Nodes of a rollout by the state of their unit.", "kind", "namespace", "name", "state")
	waiting   = comingAndGoing("moult_units_waiting", "Nodes of a rollout that need a turn and are not started, by the reason.",
		"kind", "namespace", "name", "reason")
	stalled = gauge("moult_rollout_stalled", "1 while a rollout's condition Stalled is true: it goes no further until a person acts.",
		"kind", "namespace", "name")
	turnStarts = comingAndGoing("moult_turn_start_time_seconds",
		"When the turn of a node began, in seconds since the epoch, for the 20 oldest turns in progress of a rollout.", "kind", "namespace", "name", "node")
	turns = histogram("moult_turn_duration_seconds", "How long a node's turn took, from claim to release or failure, by result.",
		seconds, "kind", "namespace", "name", "result")
	failures = counter("moult_turn_failures_total", "Turns of nodes that failed, by the reason.", "kind", "namespace", "name", "reason")
	drains   = histogram("moult_drain_duration_seconds", "How long the drain of a node took until it was done or failed, by result.",
		seconds, "kind", "namespace", "name", "result")
	evictions = counter("moult_evictions_total", "Answers to the requests to evict a pod: evicted, blocked by a PodDisruptionBudget or webhook, or failed.",
		"kind", "namespace", "name", "result")
	podEnds = histogram("moult_eviction_duration_seconds", "How long pods on nodes in a drain took from the request to delete or evict them to their end.",
		seconds, "kind")
	reconcileErrors = counter("moult_reconcile_errors_total", "Reconciles of a rollout that ended in an error.", "kind", "namespace", "name")
)

// SetBuildInfo sets the version of this program.
func SetBuildInfo(version string) { buildInfo.WithLabelValues(version, runtime.Version()).Set(1) }

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// Rollout names a rollout in metrics.
type Rollout struct {
	Kind string
	types.NamespacedName
}

func (r Rollout) values(more ...string) []string {
	return append([]string{r.Kind, r.Namespace, r.Name}, more...)
}

// series is a gauge of which the series of an object come and go by their last label.
type series struct {
	*prometheus.GaugeVec
	last sync.Map // by object, what was set
}

func comingAndGoing(name, help string, labels ...string) *series {
	return &series{GaugeVec: gauge(name, help, labels...)}
}

// set replaces the series of an object, which has these labels. A search for those that end would read the series of all objects.
func set[K ~string, V int | int32 | int64](s *series, object any, now map[K]V, labels ...string) {
	last, _ := s.last.Swap(object, now)
	if len(now) == 0 {
		s.last.Delete(object)
	}
	before, _ := last.(map[K]V)
	for label := range before {
		if _, ok := now[label]; !ok {
			s.DeleteLabelValues(append(labels, string(label))...)
		}
	}
	for label, value := range now {
		s.WithLabelValues(append(labels, string(label))...).Set(float64(value))
	}
}

// SetUnits sets how many units are in each state, and how many wait for each reason. A rollout without units has no series, for there may be
// thousands of these.
func SetUnits(r Rollout, states map[v1alpha1.UnitState]int, reasons map[v1alpha1.Reason]int) {
	for _, s := range []v1alpha1.UnitState{
		v1alpha1.UnitOutdated, v1alpha1.UnitUpdating, v1alpha1.UnitSoaking, v1alpha1.UnitUpdated, v1alpha1.UnitFailed,
	} {
		if len(states) == 0 {
			units.DeleteLabelValues(r.values(string(s))...)
			continue
		}
		units.WithLabelValues(r.values(string(s))...).Set(float64(states[s]))
	}
	set(waiting, r, reasons, r.values()...)
}

// SetStalled sets whether a rollout goes no further until a person acts.
func SetStalled(r Rollout, is bool) { stalled.WithLabelValues(r.values()...).Set(oneIf(is)) }

// SetTurns sets when the oldest turns in progress began, by node.
func SetTurns(r Rollout, oldest []v1alpha1.UnitStatus) {
	now := make(map[string]int64, len(oldest))
	for i := range oldest {
		now[oldest[i].Node] = oldest[i].Since.Unix()
	}
	set(turnStarts, r, now, r.values()...)
}

// ObserveTurn records how long a turn took that updated its node.
func ObserveTurn(r Rollout, took time.Duration) {
	turns.WithLabelValues(r.values("updated")...).Observe(took.Seconds())
}

// ObserveFailure records how long a turn took that failed, and why it did.
func ObserveFailure(r Rollout, reason v1alpha1.Reason, took time.Duration) {
	turns.WithLabelValues(r.values("failed")...).Observe(took.Seconds())
	failures.WithLabelValues(r.values(string(reason))...).Inc()
}

// ObserveDrain records how long a drain took. result is "drained" or "failed".
func ObserveDrain(r Rollout, result string, took time.Duration) {
	drains.WithLabelValues(r.values(result)...).Observe(took.Seconds())
}

// CountEvictions counts answers to requests to evict pods.
func CountEvictions(r Rollout, result string, n int) {
	evictions.WithLabelValues(r.values(result)...).Add(float64(n))
}

// ObservePodEnd records how long a pod took to end on a node that a rollout of this kind drains.
func ObservePodEnd(kind string, took time.Duration) {
	podEnds.WithLabelValues(kind).Observe(took.Seconds())
}

// CountError counts a failed reconcile.
func CountError(r Rollout) { reconcileErrors.WithLabelValues(r.values()...).Inc() }

// Forget removes a deleted rollout.
func Forget(r Rollout) {
	SetUnits(r, nil, nil)
	SetTurns(r, nil)
	forget(prometheus.Labels{"kind": r.Kind, "namespace": r.Namespace, "name": r.Name}, units, stalled, turns, failures, drains, evictions, reconcileErrors)
}
