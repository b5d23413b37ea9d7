// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
)

// A Plan drains the canary's node, and the machine reboots in its turn. The canary bears no restart, and yet does not fail.
func TestDaemonsCanaryOutlivesAPlan(t *testing.T) {
	t.Parallel()
	m := takeMachines(t, 1)[0]
	const other = "eds-claims-1"
	addDaemonNode(t, other, labelOf(t))
	nodesReady(t, other)
	d := newDaemons(t, "claims", labelOf(t), []string{m.Name(), other})
	d.start(t, d.daemon("agent", canary(15*time.Second), func(e *edsv1.ExtendedDaemonSet) {
		c := e.Spec.Strategy.Canary
		c.AutoPause.MaxRestarts, c.AutoFail.MaxRestarts = ptr.To[int32](0), ptr.To[int32](0)
		c.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelHostname: m.Name()}}
	}))
	d.edit(t, "agent", version("v2"))
	e := d.inCanary(t, "agent", 1)
	if !slices.Equal(e.Status.Canary.Nodes, []string{m.Name()}) {
		t.Fatalf("the canary is on %v", e.Status.Canary.Nodes)
	}

	p := newPlan(t, "eds-claims", "while sleep 1; do :; done")
	p.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelHostname: m.Name()}}
	p.Spec.Drain = &upgradev1.DrainSpec{}
	create(t, p)
	status(t, p.Name, "has drained the node", func(s *upgradev1.PlanStatus) bool {
		return len(s.Updating) == 1 && s.Updating[0].Phase == v1alpha1.PhaseChanging
	})
	if err := m.Reboot(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the node's pod has restarted", func(context.Context) (string, bool) {
		p := d.podOn(t, "agent", m.Name())
		return fmt.Sprint(p), p != nil && podAvailable(p) && p.Status.ContainerStatuses[0].RestartCount > 0
	})
	remove(t, p.Name)
	eventually(t, "the node is given back", func(context.Context) (string, bool) {
		n := node(t, m.Name())
		return fmt.Sprint(n.Annotations, n.Spec), n.Annotations[v1alpha1.AnnotationClaims] == "" && !n.Spec.Unschedulable
	})
	d.settled(t, "agent")
	want := []edsv1.State{edsv1.StateRunning, edsv1.StateCanary, edsv1.StateRunning}
	if seen := states(d.history(t), "agent"); !slices.Equal(seen, want) {
		t.Errorf("states are %q, want %q", seen, want)
	}
	d.onePerNode(t, "agent")
}

// A canary does not begin on a node that a Plan has.
func TestDaemonsCanaryAvoidsClaims(t *testing.T) {
	t.Parallel()
	d := simulatedDaemons(t, "avoids", 2)
	d.start(t, d.daemon("agent", canary(0)))
	p := newPlan(t, "eds-avoids", "true")
	p.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelHostname: d.nodes[0]}}
	p.Spec.Exclusive = true
	simulate(p, "hang")
	create(t, p)
	status(t, p.Name, "has the node", func(s *upgradev1.PlanStatus) bool {
		return len(s.Updating) == 1 && s.Updating[0].Phase == v1alpha1.PhaseChanging
	})
	d.edit(t, "agent", version("v2"))
	if e := d.inCanary(t, "agent", 1); !slices.Equal(e.Status.Canary.Nodes, d.nodes[1:]) {
		t.Errorf("the canary is on %v, and the plan on %s", e.Status.Canary.Nodes, d.nodes[0])
	}
	e := d.get(t, "agent")
	d.annotate(t, e, map[string]any{edsv1.AnnotationCanaryValid: e.Status.Canary.ReplicaSet})
	d.until(t, "agent", "is promoted", func(e *edsv1.ExtendedDaemonSet) bool { return e.Status.Canary == nil && e.Status.UpToDate == 1 })
	// The claimed node's pod is left alone as long as the plan has the node.
	lasts(t, 2*time.Second, "the claimed node is left alone", func(context.Context) error {
		if p := d.podOn(t, "agent", d.nodes[0]); p == nil || versionOf(p) != "v1" {
			return fmt.Errorf("%w on %s", errReplaced, d.nodes[0])
		}
		return nil
	})
	edit(t, p.Name, func(p *upgradev1.Plan) { p.Annotations = nil })
	complete(t, p.Name)
	d.settled(t, "agent")
	d.onePerNode(t, "agent")
}
