// SPDX-License-Identifier: Apache-2.0

package moult

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"moult.dev/moult/api/v1alpha1"
)

// nodeRollout is a NodeRollout, in which state its wave may be.
func (b *bench) nodeRollout(name string, strategy *v1alpha1.Strategy, wave *v1alpha1.WaveStatus) *v1alpha1.NodeRollout {
	b.t.Helper()
	nr := &v1alpha1.NodeRollout{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.NodeRolloutSpec{
			NodeSelector: metav1.LabelSelector{MatchLabels: map[string]string{"of": b.namespace}}, Strategy: strategy, HostUpdate: &v1alpha1.HostUpdate{},
		},
	}
	b.create(nr)
	nr.Status.Revision, nr.Status.Wave = "1.20.3", wave
	nr.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: metav1.ConditionFalse, Reason: "Updating", LastTransitionTime: metav1.Time{Time: now}}}
	if err := b.Status().Update(b.t.Context(), nr); err != nil {
		b.t.Fatal(err)
	}
	return nr
}

func steerANodeRollout(b *bench) {
	nr := b.nodeRollout("bottlerocket", nil, nil)
	b.says("noderollout.moult.dev/bottlerocket is not paused", "resume", "bottlerocket")
	b.says("noderollout.moult.dev/bottlerocket paused", "pause", "nr/bottlerocket")
	if s := read(b, nr).Spec.Strategy; s == nil || !s.Paused {
		b.t.Errorf("strategy: %+v", s)
	}
	b.says("noderollout.moult.dev/bottlerocket is paused already", "pause", "noderollouts.moult.dev/bottlerocket")
	b.says("noderollout.moult.dev/bottlerocket resumed", "resume", "noderollout/bottlerocket")
	latest := &v1alpha1.NodeRollout{ObjectMeta: metav1.ObjectMeta{Name: "bottlerocket"}}
	if s := read(b, latest).Spec.Strategy; s != nil {
		b.t.Errorf("a strategy is left: %+v", s)
	}
	b.says("error: noderollout.moult.dev/bottlerocket: it has no waves, or the operator has not begun with them, so there is nothing to approve", "approve", "nr/bottlerocket")
	b.says(`error: NodeRollout x not found`, "pause", "nr/x")

	wave := &v1alpha1.WaveStatus{
		Name: "canary", Number: 1, Of: 2, Revision: "1.20.3", State: v1alpha1.WaveWaitingForApproval, Since: metav1.Time{Time: now}, Nodes: 1, Updated: 1, ApproveWith: "canary@1.20.3",
	}
	waves := b.nodeRollout("waves", canary, wave)
	b.says("error: noderollout.moult.dev/waves: it is wave canary (1 of 2) that is current, not first", "approve", "nr/waves", "--wave=first")
	b.says("noderollout.moult.dev/waves wave canary (1 of 2) approved", "approve", "waves")
	if got := read(b, waves).Status.Approval; got == nil || got.Of != "canary@1.20.3" {
		b.t.Errorf("approved %+v", got)
	}
	waves.Status.Revision = "1.20.4"
	if err := b.Status().Update(b.t.Context(), waves); err != nil {
		b.t.Fatal(err)
	}
	b.says("error: noderollout.moult.dev/waves: wave canary waits at an older revision: the rollout has changed, and begins at its first wave", "approve", "nr/waves")

	b.plan("waves", nil)
	b.says(`error: several objects are named "waves": say plan/waves or nr/waves`, "pause", "waves")
}

func retryANodeRollout(b *bench) {
	nr := b.nodeRollout("bottlerocket", nil, nil)
	p := b.plan("p", nil)
	b.says("error: nothing has failed of noderollout.moult.dev/bottlerocket, so there is nothing to retry", "retry", "nr/bottlerocket")
	claim := func(rollout string, uid types.UID, reason v1alpha1.Reason) v1alpha1.Claim {
		return v1alpha1.Claim{
			Rollout: rollout, UID: uid, Turn: "1", Since: metav1.Time{Time: now},
			Failed: &v1alpha1.ClaimFailure{Reason: reason, Message: "it broke", Time: metav1.Time{Time: now}},
		}
	}
	value, err := v1alpha1.FormatClaims([]v1alpha1.Claim{
		claim("Plan/steer-retries/p", p.UID, v1alpha1.ReasonJobFailed), claim("NodeRollout/bottlerocket", nr.UID, v1alpha1.ReasonRebootTimeout),
	})
	if err != nil {
		b.t.Fatal(err)
	}
	b.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: "host-1", Labels: map[string]string{"of": b.namespace, v1alpha1.HostProtocols[0].InterfaceLabel: v1alpha1.InterfaceUpdateAPI},
		Annotations: map[string]string{v1alpha1.AnnotationClaims: value},
	}})
	b.says("error: on node host-1 have failed as well, and would be retried too: steer-retries/p (JobFailed); leave --rollout out to retry all", "retry", "host-1", "--rollout", "bottlerocket")
	b.says("error: on node host-1 have failed as well, and would be retried too: nr/bottlerocket (RebootTimeout); leave --rollout out to retry all", "retry", "host-1", "--rollout", "p")
	b.says("error: rollout nr/p has not failed on node host-1, so there is nothing to retry", "retry", "host-1", "--rollout", "nr/p")
	b.says("node/host-1 is retried: steer-retries/p (JobFailed), nr/bottlerocket (RebootTimeout) (dry run)", "retry", "host-1", "--dry-run=client")
	b.says("noderollout.moult.dev/bottlerocket is retried: host-1 (RebootTimeout)", "retry", "bottlerocket")
	if got := read(b, nr).Annotations[v1alpha1.AnnotationRetry]; got != stamp {
		b.t.Errorf("annotated %q", got)
	}
	b.nodeRollout("host-1", nil, nil)
	b.says(`error: several objects are named "host-1": say node/host-1 or nr/host-1`, "retry", "host-1")
}

// retryMachines: what has failed is also what no claim tells.
func retryMachines(b *bench) {
	nr := &v1alpha1.NodeRollout{
		ObjectMeta: metav1.ObjectMeta{Name: "machines"},
		Spec: v1alpha1.NodeRolloutSpec{
			NodeSelector: metav1.LabelSelector{MatchLabels: map[string]string{"of": b.namespace}},
			Replacement:  &v1alpha1.Replacement{Provider: v1alpha1.CloudProvider{AWS: &v1alpha1.AWSProvider{}}, ScaleSets: []string{"pool"}},
		},
	}
	b.create(nr)
	b.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "machine-1", Labels: map[string]string{"of": b.namespace}}})
	turn := func(name, node string, phase v1alpha1.MachinePhase) v1alpha1.MachineTurn {
		at := metav1.Time{Time: now}
		return v1alpha1.MachineTurn{
			Turn: name, Node: node, Machine: name, ScaleSet: "pool", Revision: "image-2", Phase: phase, Since: at, PhaseSince: at,
			Failed: &v1alpha1.ClaimFailure{Reason: v1alpha1.ReasonReplacementFailed, Message: "it is not ready", Time: at},
		}
	}
	set := func(turns ...v1alpha1.MachineTurn) {
		nr.Status.Turns = turns
		if err := b.Status().Update(b.t.Context(), nr); err != nil {
			b.t.Fatal(err)
		}
	}
	adding := turn("i-2", "", v1alpha1.MachineAdding)
	set(adding)
	b.says("error: what has failed of noderollout.moult.dev/machines goes on by itself, so there is nothing to retry: pool/i-2 (ReplacementFailed)", "retry", "nr/machines")
	set(turn("i-1", "machine-1", v1alpha1.MachineJoining), adding)
	b.says("noderollout.moult.dev/machines is retried: machine-1 (ReplacementFailed)", "retry", "nr/machines")
	if got := read(b, nr).Annotations[v1alpha1.AnnotationRetry]; got != stamp {
		b.t.Errorf("annotated %q", got)
	}
}

// TestFailuresOnNode names the rollouts whose turns failed on a node.
func TestFailuresOnNode(t *testing.T) {
	failed := &v1alpha1.ClaimFailure{Reason: v1alpha1.ReasonJobFailed}
	value, err := v1alpha1.FormatClaims([]v1alpha1.Claim{
		{Rollout: "Plan/ns/p", UID: "p", Failed: failed}, {Rollout: "Plan/ns/q", UID: "q"}, {Rollout: "NodeRollout/r", UID: "r", Failed: failed},
	})
	if err != nil {
		t.Fatal(err)
	}
	node := &unstructured.Unstructured{}
	node.SetAnnotations(map[string]string{v1alpha1.AnnotationClaims: value})
	src, _, _ := fakes(t)
	failures, err := (&steerCommand{command: command{clock: clocktesting.NewFakeClock(now)}, src: src}).failuresOnNode(t.Context(), node)
	if got, want := list(failures), "ns/p (JobFailed), nr/r (JobFailed)"; err != nil || got != want {
		t.Errorf("%s, %v, want %s", got, err, want)
	}
}
