// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/test/cluster"
)

// canaryOn runs the canary on a machine. It passes a second after its pod is ready, and fails at the first restart.
func canaryOn(m *cluster.Machine) func(*edsv1.ExtendedDaemonSet) {
	return func(e *edsv1.ExtendedDaemonSet) {
		canary(e)
		c := e.Spec.Strategy.Canary
		c.ValidationMode, c.Duration, c.NoRestartsDuration = "", &metav1.Duration{Duration: time.Second}, &metav1.Duration{Duration: time.Second}
		c.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelHostname: m.Name()}}
		c.AutoPause.Enabled, c.AutoFail.MaxRestarts = ptr.To(false), ptr.To[int32](0)
	}
}

// lateReady lets a container be ready only after some seconds. A container that ends at once is never ready.
func lateReady(e *edsv1.ExtendedDaemonSet) {
	e.Spec.Template.Spec.Containers[0].ReadinessProbe = &corev1.Probe{
		InitialDelaySeconds: 3, PeriodSeconds: 1, TimeoutSeconds: 10, ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}},
	}
}

// TestDaemonsOnMachines runs canaries on a real kubelet: one that crashes is given up, and one that becomes ready passes.
func TestDaemonsOnMachines(t *testing.T) {
	t.Parallel()
	m := takeMachines(t, 1)[0]
	d := newDaemons(t, "machines", 1, m)
	other := d.nodes[1]
	active := d.start(t, canaryOn(m)).Status.ActiveReplicaSet
	since, before := d.now(t), d.uids(t)

	command := func(text string) func(*edsv1.ExtendedDaemonSet) {
		return func(e *edsv1.ExtendedDaemonSet) {
			e.Spec.Template.Spec.Containers[0].Command = []string{"sh", "-c", text}
		}
	}
	d.edit(t, version("v2"), lateReady, command("exit 1"))
	spec := d.get(t).Spec
	e := d.canaryFailed(t, active)
	if diff := cmp.Diff(spec, e.Spec); diff != "" {
		t.Errorf("the spec was written (-before +after)\n%s", diff)
	}
	d.unchanged(t, before, other)

	d.edit(t, version("v3"), command(sleeper))
	promoted := d.settled(t).Status.ActiveReplicaSet
	all, after := d.history(t), d.uids(t)
	d.wantStates(t, edsv1.StateRunning, edsv1.StateCanary, edsv1.StateCanaryFailed, edsv1.StateRunning, edsv1.StateCanary, edsv1.StateRunning)
	if ready := whenReady(all, after[m.Name()]); ready == 0 || ready > whenActive(all, promoted) {
		t.Error("the canary passed before its pod was ready")
	}
	if whenMade(all, after[other]) < whenActive(all, promoted) {
		t.Errorf("the pod on %s was made before the canary passed", other)
	}
	for _, r := range d.revisions(t) {
		if r != active && r != promoted && whenActive(all, r) > 0 {
			t.Errorf("%s, which crashes, was promoted", r)
		}
	}
	d.disrupted(t, since, 1, 0)
}
