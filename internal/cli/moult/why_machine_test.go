// SPDX-License-Identifier: Apache-2.0

package moult

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/view"
)

// aReplacement is a NodeRollout that replaces machines.
func aReplacement(change ...func(*v1alpha1.NodeRollout)) v1alpha1.NodeRollout {
	return whyNodeRollout(append([]func(*v1alpha1.NodeRollout){func(nr *v1alpha1.NodeRollout) {
		nr.Spec.HostUpdate, nr.Spec.Replacement = nil, &v1alpha1.Replacement{Provider: v1alpha1.CloudProvider{AWS: &v1alpha1.AWSProvider{}}}
		nr.Status.Revision, nr.Status.Counts = "image-2", &v1alpha1.UnitCounts{Total: 2, Updated: 2}
	}}, change...)...)
}

func machineTurn(phase v1alpha1.MachinePhase, change ...func(*v1alpha1.MachineTurn)) func(*v1alpha1.NodeRollout) {
	t := v1alpha1.MachineTurn{
		Turn: "t", Node: "worker-1", Machine: "i-1", ScaleSet: "workers", Revision: "image-2", Phase: phase, Since: before(5 * time.Minute), PhaseSince: before(2 * time.Minute),
	}
	for _, c := range change {
		c(&t)
	}
	return func(nr *v1alpha1.NodeRollout) { nr.Status.Turns = []v1alpha1.MachineTurn{t} }
}

func listedAs(reason v1alpha1.Reason, message string) func(*v1alpha1.NodeRollout) {
	return func(nr *v1alpha1.NodeRollout) {
		nr.Status.Waiting = []v1alpha1.UnitStatus{{Node: "worker-1", Reason: reason, Message: message}}
		nr.Status.Counts = &v1alpha1.UnitCounts{Total: 2, Updated: 1, Waiting: 1}
	}
}

func TestDrawMachines(t *testing.T) {
	machine := func(n *corev1.Node) { n.Spec.ProviderID = "aws:///eu-central-1a/i-1" }
	by := func(machine, node string) func(*v1alpha1.MachineTurn) {
		return func(t *v1alpha1.MachineTurn) { t.Replacement, t.ReplacementNode = machine, node }
	}
	fails := func(message string) func(*v1alpha1.MachineTurn) {
		return func(t *v1alpha1.MachineTurn) {
			t.Failed = &v1alpha1.ClaimFailure{Reason: v1alpha1.ReasonReplacementFailed, Message: message, Time: before(time.Minute)}
		}
	}
	for name, tc := range map[string]struct {
		rollout v1alpha1.NodeRollout
		node    []func(*corev1.Node)
	}{
		"machine-updated":  {rollout: aReplacement(), node: []func(*corev1.Node){machine}},
		"machine-quota":    {rollout: aReplacement(listedAs(v1alpha1.ReasonCloudQuota, "VcpuLimitExceeded: 32 vCPUs")), node: []func(*corev1.Node){machine}},
		"machine-adding":   {rollout: aReplacement(machineTurn(v1alpha1.MachineAdding)), node: []func(*corev1.Node){machine}},
		"machine-joining":  {rollout: aReplacement(machineTurn(v1alpha1.MachineJoining, by("i-2", ""))), node: []func(*corev1.Node){machine}},
		"machine-claiming": {rollout: aReplacement(machineTurn(v1alpha1.MachineClaiming, by("i-2", "worker-9")), func(nr *v1alpha1.NodeRollout) { nr.Spec.Strategy = &v1alpha1.Strategy{Paused: true} }), node: []func(*corev1.Node){machine}},
		"machine-replaces": {rollout: aReplacement(machineTurn(v1alpha1.MachineDraining, func(t *v1alpha1.MachineTurn) { t.Node = "worker-0" }, by("i-2", "worker-1"))), node: []func(*corev1.Node){machine}},
		"machine-soaks":    {rollout: aReplacement(machineTurn(v1alpha1.MachineSoaking, func(t *v1alpha1.MachineTurn) { t.Node = "" }, by("i-2", "worker-1"))), node: []func(*corev1.Node){machine}},
		"machine-failed": {
			rollout: aReplacement(machineTurn(v1alpha1.MachineDiscarding, by("i-2", ""), fails("machine i-2 has no ready node after 15m"))),
			node:    []func(*corev1.Node){machine, hostClaim(hostFails(v1alpha1.ReasonReplacementFailed, "machine i-2 has no ready node after 15m"))},
		},
		"machine-bound": {
			rollout: aReplacement(machineTurn(v1alpha1.MachineJoining, by("i-2", "worker-9"), fails("worker-9 is not ready"))), node: []func(*corev1.Node){machine, hostClaim()},
		},
		"machine-ill": {
			rollout: aReplacement(machineTurn(v1alpha1.MachineSoaking, func(t *v1alpha1.MachineTurn) { t.Node, t.Machine = "", "" }, by("i-2", "worker-1"), fails("worker-1 is not ready"))),
			node:    []func(*corev1.Node){machine},
		},
		"machine-opted-out": {rollout: aReplacement(), node: []func(*corev1.Node){machine, func(n *corev1.Node) { n.Labels["noderollout.moult.dev/bottlerocket"] = "disabled" }}},
		"machine-none":      {rollout: aReplacement()},
		"machine-untold": {rollout: aReplacement(func(nr *v1alpha1.NodeRollout) {
			nr.Status.Counts = &v1alpha1.UnitCounts{Total: 90, Updated: 50, Waiting: 40}
		}), node: []func(*corev1.Node){machine}},
	} {
		t.Run(name, func(t *testing.T) {
			nodes := []corev1.Node{whyNode("worker-1", tc.node...), whyNode("worker-2")}
			w, ok := view.See(nil, nodes, nil, now).NodeRollouts([]v1alpha1.NodeRollout{tc.rollout}).Why("worker-1")
			if !ok {
				t.Fatal("there is no such node")
			}
			golden(t, "why/"+name, explain(&w, now).Text(0, false))
		})
	}
}

// TestAdviceForMachines: reasons that a person can end have something to do about them, each way to fail something to look at, and none says what is for hosts.
func TestAdviceForMachines(t *testing.T) {
	advice := func(nr v1alpha1.NodeRollout, options ...func(*corev1.Node)) string {
		n := whyNode("worker-1", append([]func(*corev1.Node){func(n *corev1.Node) { n.Spec.ProviderID = "gce://p/z/worker-1" }}, options...)...)
		w, _ := view.See(nil, []corev1.Node{n}, nil, now).NodeRollouts([]v1alpha1.NodeRollout{nr}).Why("worker-1")
		return string(explain(&w, now).Text(0, false))
	}
	for reason, want := range map[v1alpha1.Reason]string{
		v1alpha1.ReasonMachineUnknown: ".spec.providerID", v1alpha1.ReasonMachineProtected: "noderollout.moult.dev/bottlerocket=disabled",
		v1alpha1.ReasonScaleSetFull:  "spec.replacement.onFull",
		v1alpha1.ReasonScaleSetUnfit: "docs/operations", v1alpha1.ReasonScaleSetNotFound: "the right scale sets", v1alpha1.ReasonCloudQuota: "more quota",
		v1alpha1.ReasonCloudDenied:        "the rights",
		v1alpha1.ReasonReplacementPending: "kubectl moult status nr/bottlerocket", v1alpha1.ReasonEtcdUnhealthy: "mend the member",
	} {
		nr := aReplacement(listedAs(reason, "because"))
		if got := advice(nr); !strings.Contains(got, want) || !strings.Contains(got, string(reason)) || strings.Contains(got, "agent") {
			t.Errorf("%s, want %q:\n%s", reason, want, got)
		}
	}
	for reason, want := range map[v1alpha1.Reason]string{
		v1alpha1.ReasonReplacementFailed: "keepFailedFor", v1alpha1.ReasonDeleteFailed: "a lock or a protection",
		v1alpha1.ReasonDrainRefused: "spec.drain.force", v1alpha1.ReasonDrainTimeout: "PodDisruptionBudget", v1alpha1.ReasonTurnTimeout: "spec.strategy.turnTimeout",
	} {
		got := advice(aReplacement(), hostClaim(hostFails(reason, "it broke")))
		if !strings.Contains(got, want) || !strings.Contains(got, "kubectl moult retry worker-1") {
			t.Errorf("%s, want %q:\n%s", reason, want, got)
		}
	}
}
