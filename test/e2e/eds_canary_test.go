// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
)

// revisions are the names of the ExtendedDaemonSetReplicaSets.
func (d *daemons) revisions(t *testing.T) []string {
	t.Helper()
	var all edsv1.ExtendedDaemonSetReplicaSetList
	d.list(t, &all, client.MatchingLabels{edsv1.LabelName: agent})
	var names []string
	for _, r := range all.Items {
		names = append(names, r.Name)
	}
	return names
}

// TestDaemonsCanaryByHand steers canaries with `kubectl eds`. A template that was there before has a canary again, and one that
// failed has still failed when it comes back.
func TestDaemonsCanaryByHand(t *testing.T) {
	t.Parallel()
	d := newDaemons(t, "by-hand", 3)
	first := d.start(t, canary).Status.ActiveReplicaSet
	since := d.now(t)
	tries := func(want string) string {
		t.Helper()
		e := d.inCanary(t, 1)
		if want != "" && e.Status.Canary.ReplicaSet != want {
			t.Fatalf("the canary is %s, want %s", e.Status.Canary.ReplicaSet, want)
		}
		return e.Status.Canary.ReplicaSet
	}
	passes := func(want string) {
		t.Helper()
		d.eds(t, "canary", "validate", agent)
		if e := d.settled(t); e.Status.ActiveReplicaSet != want {
			t.Errorf("%s is active, want %s", e.Status.ActiveReplicaSet, want)
		}
	}

	d.edit(t, version("v2"))
	second := tries("")
	d.eds(t, "canary", "pause", agent)
	d.inState(t, edsv1.StateCanaryPaused)
	d.eds(t, "canary", "unpause", agent)
	tries(second)
	d.eds(t, "canary", "fail", agent)
	d.canaryFailed(t, first)
	d.eds(t, "canary", "reset", agent)
	tries(second)
	passes(second)

	d.eds(t, "rollback", agent)
	tries(first)
	d.eds(t, "canary", "fail", agent)
	d.canaryFailed(t, second)
	d.edit(t, version("v3"))
	third := tries("")
	passes(third)
	d.wantStates(t,
		edsv1.StateRunning, edsv1.StateCanary, edsv1.StateCanaryPaused, edsv1.StateCanary, edsv1.StateCanaryFailed, edsv1.StateRunning, // v2 fails
		edsv1.StateCanary, edsv1.StateRunning, // and passes.
		edsv1.StateCanary, edsv1.StateCanaryFailed, edsv1.StateRunning, // v1 fails.
		edsv1.StateCanary, edsv1.StateRunning, // v3 passes.
	)
	d.edit(t, version("v1"))
	d.canaryFailed(t, third)
	d.disrupted(t, since, 1, 0)
}

// TestDaemonsCanaryMoves from a node that is deleted or cordoned, and from some when it is to have fewer.
func TestDaemonsCanaryMoves(t *testing.T) {
	t.Parallel()
	d := newDaemons(t, "moves", 4)
	active := d.start(t, canary, func(e *edsv1.ExtendedDaemonSet) { e.Spec.Strategy.Canary.Replicas = ptr.To(intstr.FromInt32(2)) }).Status.ActiveReplicaSet
	d.edit(t, version("v2"))
	first := d.inCanary(t, 2).Status.Canary.Nodes
	moved := func(from, stays string) []string {
		t.Helper()
		d.until(t, "the canary leaves "+from, func(e *edsv1.ExtendedDaemonSet) bool {
			return e.Status.Canary != nil && !slices.Contains(e.Status.Canary.Nodes, from)
		})
		e := d.inCanary(t, 2)
		if stays != "" && !slices.Contains(e.Status.Canary.Nodes, stays) || e.Status.ActiveReplicaSet != active {
			t.Errorf("the canary left %s: %s", from, statusOf(e))
		}
		return e.Status.Canary.Nodes
	}
	d.removeNode(t, first[0])
	moved(first[0], first[1])
	patchNode(t, first[1], map[string]any{"spec": map[string]any{"unschedulable": true}})
	moved(first[1], "")
	d.edit(t, func(e *edsv1.ExtendedDaemonSet) { e.Spec.Strategy.Canary.Replicas = ptr.To(intstr.FromInt32(1)) })
	d.inCanary(t, 1)
	d.until(t, "nodes without the canary have the active revision again", func(e *edsv1.ExtendedDaemonSet) bool {
		return e.Status.Canary != nil && e.Status.UpToDate == 1 && e.Status.Available == 3
	})
	d.eds(t, "canary", "validate", agent)
	d.settled(t)
}

// TestDaemonsAvoidClaims starts neither a canary nor a replacement on a node that a Plan has.
func TestDaemonsAvoidClaims(t *testing.T) {
	t.Parallel()
	d := newDaemons(t, "avoids", 2)
	d.start(t, canary)
	before := d.uids(t)
	p := newPlan(t, "eds-avoids", "true")
	p.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelHostname: d.nodes[0]}}
	p.Spec.Exclusive = true
	simulate(p, "hang")
	create(t, p)
	status(t, p.Name, "has the node", func(s *upgradev1.PlanStatus) bool {
		return len(s.Updating) == 1 && s.Updating[0].Phase == v1alpha1.PhaseChanging
	})
	d.edit(t, version("v2"))
	if e := d.inCanary(t, 1); !slices.Equal(e.Status.Canary.Nodes, d.nodes[1:]) {
		t.Errorf("the canary is on %v, and the Plan on %s", e.Status.Canary.Nodes, d.nodes[0])
	}
	d.eds(t, "canary", "validate", agent)
	d.until(t, "the claimed node waits", func(e *edsv1.ExtendedDaemonSet) bool {
		w := e.Status.Waiting
		return e.Status.Canary == nil && len(w) == 1 && w[0].Node == d.nodes[0] && w[0].Reason == v1alpha1.ReasonClaimed
	})
	d.unchanged(t, before, d.nodes[0])
	edit(t, p.Name, func(p *upgradev1.Plan) { p.Annotations = nil })
	complete(t, p.Name)
	d.settled(t)
}
