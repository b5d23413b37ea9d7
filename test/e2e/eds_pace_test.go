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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
)

// mostInCreation is how many pods there were at once that were not ready and younger than an age, whenever one was made.
func mostInCreation(all []daemonChange, name string, age time.Duration) int {
	most := 0
	var made []daemonChange
	for _, c := range creations(all, name) {
		made = append(made, c)
		young := 0
		for _, m := range made {
			ready := whenReady(all, m.object.GetUID())
			if whenMade(c).Sub(whenMade(m)) < age && (ready.object == nil || ready.revision > c.revision) {
				young++
			}
		}
		most = max(most, young)
	}
	return most
}

// A slow start lets so many pods be in creation at first, and so many more after each interval.
func TestDaemonsSlowStart(t *testing.T) {
	t.Parallel()
	slowStart(2*time.Second, 5*time.Second)(t, simulatedDaemons(t, "slowstart", 7))
}

// slowStart makes pods of which none is ever ready: each is in creation for as long as reconcileFrequency, the period.
func slowStart(period, interval time.Duration) func(*testing.T, *daemons) {
	return func(t *testing.T, d *daemons) { startSlowly(t, d, period, interval) }
}

func startSlowly(t *testing.T, d *daemons, period, interval time.Duration) {
	d.create(t, d.daemon("agent", func(e *edsv1.ExtendedDaemonSet) {
		e.Spec.Template.Annotations["test.moult.dev/unready"] = "true"
		e.Spec.Template.Spec.Containers[0].ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"false"}}}}
		e.Spec.Strategy.ReconcileFrequency = &metav1.Duration{Duration: period}
		e.Spec.Strategy.RollingUpdate.SlowStartAdditiveIncrease = ptr.To(intstr.FromInt32(1))
		e.Spec.Strategy.RollingUpdate.SlowStartIntervalDuration = &metav1.Duration{Duration: interval}
	}))
	eventually(t, "all pods are made", func(context.Context) (string, bool) {
		n := len(d.pods(t, "agent"))
		return fmt.Sprint(n), n == len(d.nodes)
	})
	made := creations(d.history(t), "agent")
	// All is counted in whole seconds of the API server's clock. The slow start begins with the revision, which may have had to
	// wait for its first pod.
	active := edsv1.FindCondition(d.revision(t, made[0].object.GetLabels()[edsv1.LabelReplicaSetName]).Status.Conditions, edsv1.ConditionActive)
	if active == nil || whenMade(made[0]).Sub(active.LastTransitionTime.Time) > patience {
		t.Fatalf("the revision of the first pod, made at %s, is active since %v", whenMade(made[0]), active)
	}
	began := active.LastTransitionTime.Time
	for i, c := range made {
		allowed := 1 + int(whenMade(c).Sub(began)/interval)
		young := 0
		for _, before := range made[:i+1] {
			if whenMade(c).Sub(whenMade(before)) < period {
				young++
			}
		}
		if young > allowed {
			t.Errorf("%d pods were in creation %s after it began, want at most %d", young, whenMade(c).Sub(began), allowed)
		}
	}
	if took := whenMade(made[len(made)-1]).Sub(whenMade(made[0])); took < period || took > patience {
		t.Errorf("it took %s", took)
	}
}

// createdOneByOne makes a pod when the one before is ready, however many nodes wait.
func createdOneByOne(t *testing.T, d *daemons) {
	d.start(t, d.daemon("agent", func(e *edsv1.ExtendedDaemonSet) {
		e.Spec.Strategy.RollingUpdate.MaxParallelPodCreation = ptr.To[int32](1)
		e.Spec.Strategy.RollingUpdate.MaxUnavailable = ptr.To(intstr.FromString("100%"))
		e.Spec.Template.Spec.Containers[0].ReadinessProbe = &corev1.Probe{
			InitialDelaySeconds: 1, PeriodSeconds: 1, TimeoutSeconds: 10, ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}},
		}
	}))
	since, began := d.now(t), time.Now()
	d.edit(t, "agent", version("v2"))
	d.settled(t, "agent")
	if most := mostInCreation(d.history(t), "agent", 9*time.Second); most != 1 {
		t.Errorf("%d pods were in creation at once, want 1", most)
	}
	// Deletions do not outrun creations. For a node that is not ready nobody waits.
	if down := d.mostDown(t, since, of("agent")); down != 1 && !d.faltered(t, began) {
		t.Errorf("%d nodes were without a pod at once, want 1", down)
	}
	d.onePerNode(t, "agent")
}

// A rolling update has as many nodes without an available pod as it may, and no more, and begins where there is none anyway.
func TestDaemonsMaxUnavailable(t *testing.T) {
	t.Parallel()
	d := simulatedDaemons(t, "unavailable", 7)
	d.start(t, d.daemon("agent", func(e *edsv1.ExtendedDaemonSet) {
		e.Spec.Strategy.RollingUpdate.MaxUnavailable = ptr.To(intstr.FromString("30%")) // 3 of 7
	}))
	ill := d.podOn(t, "agent", d.nodes[4])
	d.annotate(t, ill, map[string]any{"test.moult.dev/unready": "true"})
	no := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse, LastTransitionTime: metav1.Now()}
	eventually(t, "a pod is not ready", func(ctx context.Context) (string, bool) {
		p := d.podOn(t, "agent", d.nodes[4])
		i := slices.IndexFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady })
		p.Status.Conditions[i] = no
		err := d.Status().Update(ctx, p)
		return fmt.Sprint(err), err == nil
	})
	d.until(t, "agent", "sees it", func(e *edsv1.ExtendedDaemonSet) bool { return e.Status.Available == 6 })
	since, began := d.now(t), time.Now()
	d.edit(t, "agent", version("v2"), func(e *edsv1.ExtendedDaemonSet) {
		e.Spec.Template.Annotations = map[string]string{"test.moult.dev/start-seconds": "1"}
	})
	d.settled(t, "agent")
	if down := d.mostDown(t, since, of("agent")); down != 3 && !d.faltered(t, began) {
		t.Errorf("at most %d nodes were without an available pod, want 3", down)
	}
	var ended []types.UID
	for _, c := range d.history(t) {
		if p, ok := c.object.(*corev1.Pod); ok && p.DeletionTimestamp != nil && !slices.Contains(ended, p.UID) {
			ended = append(ended, p.UID)
		}
	}
	if i := slices.Index(ended, ill.UID); (i < 0 || i > 2) && !d.faltered(t, began) {
		t.Errorf("the pod that was not ready went as number %d", i+1)
	}
	d.onePerNode(t, "agent")
}

// surge starts the new pod beside the old one, which goes when the new one is ready.
func surge(t *testing.T, d *daemons) {
	d.start(t, d.daemon("agent", func(e *edsv1.ExtendedDaemonSet) {
		e.Spec.Strategy.RollingUpdate.MaxSurge = ptr.To(intstr.FromInt32(1))
		e.Spec.Template.Spec.Containers[0].ReadinessProbe = &corev1.Probe{
			InitialDelaySeconds: 1, PeriodSeconds: 1, TimeoutSeconds: 10, ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}},
		}
	}))
	since, began := d.now(t), time.Now()
	d.edit(t, "agent", version("v2"))
	d.settled(t, "agent")
	if down := d.mostDown(t, since, of("agent")); down != 0 && !d.faltered(t, began) {
		t.Errorf("%d nodes were without an available pod at once, want none", down)
	}
	if most, double := d.mostOnANode(t, of("agent")); (most != 2 || double != 1) && !d.faltered(t, began) {
		t.Errorf("there were %d pods on a node, and more than one on %d nodes at once, want 2 and 1", most, double)
	}
}

// surgeWithHostPort can't have two pods on a node that want the same port of it: the old one goes first.
func surgeWithHostPort(t *testing.T, d *daemons) {
	d.start(t, d.daemon("agent", func(e *edsv1.ExtendedDaemonSet) {
		e.Spec.Strategy.RollingUpdate.MaxSurge = ptr.To(intstr.FromInt32(1))
		e.Spec.Template.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 8126, HostPort: 31126, Protocol: corev1.ProtocolTCP}}
	}))
	since, began := d.now(t), time.Now()
	d.edit(t, "agent", version("v2"))
	d.settled(t, "agent")
	if down := d.mostDown(t, since, of("agent")); down != 1 && !d.faltered(t, began) {
		t.Errorf("%d nodes were without an available pod at once, want 1", down)
	}
	d.onePerNode(t, "agent")
}

// minReadySeconds are between a pod that is ready and the next that is replaced.
func minReadySeconds(t *testing.T, d *daemons) {
	const seconds = 4
	d.start(t, d.daemon("agent", func(e *edsv1.ExtendedDaemonSet) { e.Spec.MinReadySeconds = seconds }))
	since, began := d.now(t), time.Now()
	d.edit(t, "agent", version("v2"))
	d.settled(t, "agent")
	all := d.history(t)
	var last time.Time
	n := 0
	for _, c := range creations(all, "agent") {
		if c.revision <= since {
			continue
		}
		if n++; !last.IsZero() && whenMade(c).Sub(last) < seconds*time.Second && !d.faltered(t, began) {
			t.Errorf("pod %s was made %s after the one before was ready", c.object.GetName(), whenMade(c).Sub(last))
		}
		last = saysReadySince(all, c.object.GetUID())
	}
	if n != len(d.nodes) {
		t.Errorf("%d pods were made, want %d", n, len(d.nodes))
	}
	if !slices.ContainsFunc(all, func(c daemonChange) bool {
		e, ok := c.object.(*edsv1.ExtendedDaemonSet)
		return ok && c.revision > since && e.Status.Ready == 3 && e.Status.Available == 2
	}) {
		t.Error("the status never said that a ready pod is not available yet")
	}
	d.onePerNode(t, "agent")
}

// faltered reports whether any of the nodes was not ready since, as that of a busy machine may be for a moment: its pods are
// not ready then, either.
func (d *daemons) faltered(t *testing.T, since time.Time) bool {
	t.Helper()
	for _, name := range d.nodes {
		n := node(t, name)
		for i := range n.Status.Conditions {
			if c := &n.Status.Conditions[i]; c.Type == corev1.NodeReady && !c.LastTransitionTime.Time.Before(since.Truncate(time.Second)) {
				t.Logf("Node %s is %s since %s", name, c.Status, c.LastTransitionTime)
				return true
			}
		}
	}
	return false
}
