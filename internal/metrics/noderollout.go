// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"moult.dev/moult/api/v1alpha1"
)

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
