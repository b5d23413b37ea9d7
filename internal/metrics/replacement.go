// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"moult.dev/moult/api/v1alpha1"
)

var (
	cloudCalls = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "moult_cloud_call_duration_seconds",
		Help:    "How long calls of clouds took, by provider, call and outcome: ok, or the kind of the error.",
		Buckets: []float64{0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30},
	}, []string{"provider", "call", "outcome"})

	machines = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "moult_machines",
		Help: "Machines of a scale set that a NodeRollout is for, by what the cloud says of them.",
	}, []string{"name", "scale_set", "state"})

	outdatedMachines = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "moult_machines_outdated",
		Help: "Machines of a scale set that are to be replaced.",
	}, []string{"name", "scale_set"})

	phases = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "moult_machine_phase_duration_seconds",
		Help:    "How long the turns of machines were in a phase.",
		Buckets: []float64{1, 2, 5, 10, 30, 60, 120, 300, 600, 1200, 3600, 7200},
	}, []string{"name", "phase"})
)

func init() { //nolint:gochecknoinits // The registry of controller-runtime is global, and so are its collectors.
	metrics.Registry.MustRegister(cloudCalls, machines, outdatedMachines, phases)
}

// ObserveCloudCall notes a call of a cloud.
func ObserveCloudCall(provider, call, outcome string, took time.Duration) {
	cloudCalls.WithLabelValues(provider, call, outcome).Observe(took.Seconds())
}

// SetMachines sets how many machines of a scale set are in which state, and how many are outdated.
func SetMachines(name, set string, states map[string]int, outdated int) {
	machines.DeletePartialMatch(prometheus.Labels{"name": name, "scale_set": set})
	for state, n := range states {
		machines.WithLabelValues(name, set, state).Set(float64(n))
	}
	outdatedMachines.WithLabelValues(name, set).Set(float64(outdated))
}

// ForgetScaleSet drops a scale set that a NodeRollout is not for any more.
func ForgetScaleSet(name, set string) {
	labels := prometheus.Labels{"name": name, "scale_set": set}
	machines.DeletePartialMatch(labels)
	outdatedMachines.DeletePartialMatch(labels)
}

// ObservePhase notes how long a turn was in a phase.
func ObservePhase(name string, phase v1alpha1.MachinePhase, took time.Duration) {
	phases.WithLabelValues(name, string(phase)).Observe(took.Seconds())
}

func forgetMachines(name string) {
	labels := prometheus.Labels{"name": name}
	machines.DeletePartialMatch(labels)
	outdatedMachines.DeletePartialMatch(labels)
	phases.DeletePartialMatch(labels)
}
