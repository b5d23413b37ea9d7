// SPDX-License-Identifier: Apache-2.0

// Package metrics holds every collector of Moult.
package metrics

import (
	"runtime"
	"strconv"
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
		"When the turn of a node began, in seconds since the epoch, for the 20 oldest turns of a rollout that are in progress and do not soak.", "kind", "namespace", "name", "node")
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

var (
	budgetMatched     = gauge("moult_budget_matched", "Nodes that a NodeDisruptionBudget selects.", "budget")
	budgetUnavailable = gauge("moult_budget_unavailable", "Nodes that a NodeDisruptionBudget selects and that are unavailable.", "budget")
	budgetAllowed     = gauge("moult_budget_allowed",
		"How many more nodes a NodeDisruptionBudget lets be taken now; absent when it sets no limit and nothing blocks.", "budget")
	budgetBlocked = comingAndGoing("moult_budget_blocked",
		"1 for each gate that keeps all nodes of a NodeDisruptionBudget from being taken now.", "budget", "gate")
)

// SetBudget sets the series of a budget by its status.
func SetBudget(budget string, s *v1alpha1.NodeDisruptionBudgetStatus) {
	budgetMatched.WithLabelValues(budget).Set(float64(s.Matched))
	budgetUnavailable.WithLabelValues(budget).Set(float64(s.Unavailable))
	if s.Allowed == nil {
		budgetAllowed.DeleteLabelValues(budget)
	} else {
		budgetAllowed.WithLabelValues(budget).Set(float64(*s.Allowed))
	}
	now := make(map[v1alpha1.Reason]int, len(s.BlockedBy))
	for i := range s.BlockedBy {
		now[s.BlockedBy[i].Gate] = 1
	}
	set(budgetBlocked, budget, now, budget)
}

// ForgetBudget removes a deleted budget.
func ForgetBudget(budget string) {
	SetBudget(budget, &v1alpha1.NodeDisruptionBudgetStatus{})
	budgetMatched.DeleteLabelValues(budget)
	budgetUnavailable.DeleteLabelValues(budget)
}

// These have the names and labels that they have in ExtendedDaemonSet.
var (
	rollingUpdateStuck = comingAndGoing("ers_rolling_update_stuck",
		"1 while pods of an ExtendedDaemonSetReplicaSet's predecessors wait to be replaced, and none may be, though nothing is paused.", "namespace", "name")
	controllerLeader = gauge("eds_controller_leader", "1, with whether this process leads the controllers.", "leader")
)

func init() { SetLeader(false) } //nolint:gochecknoinits // A process does not lead before it says so.

// SetLeader sets whether this process leads.
func SetLeader(leads bool) {
	controllerLeader.Reset()
	controllerLeader.WithLabelValues(strconv.FormatBool(leads)).Set(1)
}

// DaemonSet names an ExtendedDaemonSet in metrics.
func DaemonSet(key types.NamespacedName) Rollout {
	return Rollout{Kind: "ExtendedDaemonSet", NamespacedName: key}
}

// SetStuck sets for each replica set of an ExtendedDaemonSet, by name, whether its rolling update is stuck. It removes all
// other replica sets of it.
func SetStuck(daemonset types.NamespacedName, replicasets map[string]bool) {
	now := make(map[string]int, len(replicasets))
	for name, stuck := range replicasets {
		now[name] = int(oneIf(stuck))
	}
	set(rollingUpdateStuck, daemonset, now, daemonset.Namespace)
}

// ForgetDaemonSet removes a deleted ExtendedDaemonSet and its replica sets.
func ForgetDaemonSet(daemonset types.NamespacedName) {
	SetStuck(daemonset, nil)
	Forget(DaemonSet(daemonset))
}

var (
	hostVersions = comingAndGoing("moult_host_versions",
		"Nodes of a NodeRollout by the version that their hosts run, for the most frequent versions.", "name", "version")
	reboots = histogram("moult_host_reboot_duration_seconds",
		"How long hosts took from the order to reboot until they ran the version of a NodeRollout.", seconds, "name")
	cloudCalls = histogram("moult_cloud_call_duration_seconds",
		"How long calls of clouds took, by provider, call and outcome: ok, or the kind of the error.",
		[]float64{0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30}, "provider", "call", "outcome")
	machines = comingAndGoing("moult_machines", "Machines of a scale set that a NodeRollout is for, by what the cloud says of them.",
		"name", "scale_set", "state")
	outdatedMachines = gauge("moult_machines_outdated", "Machines of a scale set that must be replaced.", "name", "scale_set")
	phases           = histogram("moult_machine_phase_duration_seconds", "How long the turns of machines were in a phase.", seconds, "name", "phase")
)

var agentPolicyMissing = registry.NewGauge(prometheus.GaugeOpts{
	Name: "moult_agent_policy_missing", Help: "1 if no policy of admission bounds what the agents on hosts may write.",
})

// SetAgentPolicyMissing sets whether the policy of the agents is missing.
func SetAgentPolicyMissing(missing bool) {
	agentPolicyMissing.Set(oneIf(missing))
}

// SetHostVersions sets how many nodes of a NodeRollout run which version.
func SetHostVersions(name string, versions []v1alpha1.HostVersion) {
	now := make(map[string]int32, len(versions))
	for _, v := range versions {
		now[v.Version] = v.Nodes
	}
	set(hostVersions, name, now, name)
}

// ObserveReboot records how long a host took to run the version.
func ObserveReboot(name string, took time.Duration) {
	reboots.WithLabelValues(name).Observe(took.Seconds())
}

// ForgetNodeRollout removes a deleted NodeRollout.
func ForgetNodeRollout(key types.NamespacedName) {
	SetHostVersions(key.Name, nil)
	for set := range machines.last.Range {
		if of, _ := set.([2]string); of[0] == key.Name {
			machines.last.Delete(set)
		}
	}
	forget(prometheus.Labels{"name": key.Name}, reboots, machines, outdatedMachines, phases)
	Forget(Rollout{Kind: "NodeRollout", NamespacedName: key})
}

// ObserveCloudCall records a call of a cloud.
func ObserveCloudCall(provider, call, outcome string, took time.Duration) {
	cloudCalls.WithLabelValues(provider, call, outcome).Observe(took.Seconds())
}

// SetMachines sets how many machines of a scale set are in which state, and how many are outdated.
func SetMachines(name, scaleSet string, states map[string]int, outdated int) {
	set(machines, [2]string{name, scaleSet}, states, name, scaleSet)
	outdatedMachines.WithLabelValues(name, scaleSet).Set(float64(outdated))
}

// ForgetScaleSet removes a scale set that a NodeRollout no longer changes.
func ForgetScaleSet(name, scaleSet string) {
	SetMachines(name, scaleSet, nil, 0)
	outdatedMachines.DeleteLabelValues(name, scaleSet)
}

// ObservePhase records how long a turn was in a phase.
func ObservePhase(name string, phase v1alpha1.MachinePhase, took time.Duration) {
	phases.WithLabelValues(name, string(phase)).Observe(took.Seconds())
}

var (
	notifications = counter("moult_notifications_total",
		"Requests to webhooks with a notification, by the webhook's name, the event, and the outcome: sent, failed (and sent again later), or refused.",
		"webhook", "event", "outcome")
	notificationsInvalid = gauge("moult_notifications_invalid", "1 while the Secret moult-notifications has an error, so that no notification is sent.")
)

// CountNotification counts one request to a webhook.
func CountNotification(webhook, event, outcome string) {
	notifications.WithLabelValues(webhook, event, outcome).Inc()
}

// SetNotificationsInvalid sets whether the configuration of notifications has an error.
func SetNotificationsInvalid(is bool) { notificationsInvalid.WithLabelValues().Set(oneIf(is)) }
