// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
)

// canaryNeedsReadiness promotes no canary before its pod has been ready for the whole duration, however long that takes.
func canaryNeedsReadiness(t *testing.T, d *daemons) {
	const duration = 4 * time.Second
	gate := "/var/lib/" + d.namespace
	for _, n := range d.nodes {
		if out, err := world.Machine(n).Exec(t.Context(), "mkdir", "-p", gate); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	active := d.start(t, d.daemon("agent", canary(duration))).Status.ActiveReplicaSet
	before := d.uids(t, "agent")
	d.edit(t, "agent", version("v2"), func(e *edsv1.ExtendedDaemonSet) {
		s := &e.Spec.Template.Spec
		s.Volumes = []corev1.Volume{{Name: "gate", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: gate}}}}
		s.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "gate", MountPath: "/gate"}}
		s.Containers[0].ReadinessProbe = &corev1.Probe{
			PeriodSeconds: 1, TimeoutSeconds: 10, FailureThreshold: 1,
			ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"test", "-e", "/gate/open"}}},
		}
	})
	e := d.until(t, "agent", "has a canary that runs", func(e *edsv1.ExtendedDaemonSet) bool {
		if e.Status.Canary == nil || len(e.Status.Canary.Nodes) != 1 {
			return false
		}
		p := d.podOn(t, "agent", e.Status.Canary.Nodes[0])
		return p != nil && p.Status.Phase == corev1.PodRunning && versionOf(p) == "v2"
	})
	node := e.Status.Canary.Nodes[0]
	lasts(t, 2*duration, "the canary goes on", func(context.Context) error {
		now := d.get(t, "agent")
		if s := now.Status; s.State != edsv1.StateCanary || s.ActiveReplicaSet != active {
			return errors.New(statusOf(now))
		}
		for name, uid := range d.uids(t, "agent") {
			if name != node && before[name] != uid {
				return fmt.Errorf("%w on %s", errReplaced, name)
			}
		}
		return nil
	})
	for _, n := range d.nodes {
		if out, err := world.Machine(n).Exec(t.Context(), "touch", gate+"/open"); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	tried := d.podOn(t, "agent", node)
	promoted := d.settled(t, "agent").Status.ActiveReplicaSet
	all := d.history(t)
	if after := whenActive(all, "agent", promoted).at.Sub(saysReadySince(all, tried.UID)); after < duration {
		t.Errorf("the canary was promoted %s after its pod was ready, want %s", after, duration)
	}
	d.onePerNode(t, "agent")
}

// A canary keeps to nodes that take pods: it moves from one that goes or is cordoned, and from some when it is to have fewer.
func TestDaemonsCanaryMoves(t *testing.T) {
	t.Parallel()
	d := simulatedDaemons(t, "moves", 5)
	cordoned := d.nodes[0]
	patchNode(t, cordoned, map[string]any{"spec": map[string]any{"unschedulable": true}})
	active := d.start(t, d.daemon("agent", canary(0), func(e *edsv1.ExtendedDaemonSet) {
		e.Spec.Strategy.Canary.Replicas = ptr.To(intstr.FromInt32(2))
	})).Status.ActiveReplicaSet
	d.edit(t, "agent", version("v2"))
	first := d.inCanary(t, "agent", 2).Status.Canary.Nodes
	if slices.Contains(first, cordoned) {
		t.Errorf("the canary is on %v, and %s is cordoned", first, cordoned)
	}

	gone, kept := first[0], first[1]
	if err := world.Delete(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: gone}}); err != nil {
		t.Fatal(err)
	}
	moved := d.until(t, "agent", "has moved from the node that is gone", func(e *edsv1.ExtendedDaemonSet) bool {
		return e.Status.Canary != nil && !slices.Contains(e.Status.Canary.Nodes, gone)
	})
	second := d.inCanary(t, "agent", 2).Status.Canary.Nodes
	if !slices.Contains(second, kept) || moved.Status.ActiveReplicaSet != active {
		t.Errorf("the canary moved from %v to %v: %s", first, second, statusOf(moved))
	}

	patchNode(t, kept, map[string]any{"spec": map[string]any{"unschedulable": true}})
	d.until(t, "agent", "has moved from the node that is cordoned", func(e *edsv1.ExtendedDaemonSet) bool {
		return e.Status.Canary != nil && !slices.Contains(e.Status.Canary.Nodes, kept)
	})
	back := func(node string) {
		t.Helper()
		eventually(t, node+" has the active revision again", func(context.Context) (string, bool) {
			p := d.podOn(t, "agent", node)
			return fmt.Sprint(p), p != nil && podAvailable(p) && p.Labels[edsv1.LabelReplicaSetName] == active && p.Labels[edsv1.LabelReplicaSetCanary] == ""
		})
	}
	back(kept)
	patchNode(t, kept, map[string]any{"spec": map[string]any{"unschedulable": nil}})

	third := d.inCanary(t, "agent", 2).Status.Canary.Nodes
	d.edit(t, "agent", func(e *edsv1.ExtendedDaemonSet) { e.Spec.Strategy.Canary.Replicas = ptr.To(intstr.FromInt32(1)) })
	e := d.inCanary(t, "agent", 1)
	for _, n := range third {
		if n != e.Status.Canary.Nodes[0] {
			back(n)
		}
	}
	d.annotate(t, e, map[string]any{edsv1.AnnotationCanaryValid: e.Status.Canary.ReplicaSet})
	patchNode(t, cordoned, map[string]any{"spec": map[string]any{"unschedulable": nil}})
	d.nodes = slices.DeleteFunc(d.nodes, func(n string) bool { return n == gone })
	d.settled(t, "agent")
	d.onePerNode(t, "agent")
}

// Where there are fewer nodes than the canary should have it runs on as many as there are.
func TestDaemonsCanaryOnFewerNodes(t *testing.T) {
	t.Parallel()
	d := simulatedDaemons(t, "fewer", 2)
	active := d.start(t, d.daemon("agent", canary(0), func(e *edsv1.ExtendedDaemonSet) {
		e.Spec.Strategy.Canary.Replicas = ptr.To(intstr.FromInt32(7))
	})).Status.ActiveReplicaSet
	d.edit(t, "agent", version("v2"))
	e := d.inCanary(t, "agent", 2)
	if e.Status.ActiveReplicaSet != active {
		t.Errorf("%s is active", e.Status.ActiveReplicaSet)
	}
	d.annotate(t, e, map[string]any{edsv1.AnnotationCanaryValid: e.Status.Canary.ReplicaSet})
	d.settled(t, "agent")
	d.onePerNode(t, "agent")
}
