// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
)

// migration is a taint that nodes have. Pods tolerate it.
var migration = []corev1.Toleration{{Key: "e2e.moult.dev/migrate", Operator: corev1.TolerationOpExists}}

func tolerating(e *edsv1.ExtendedDaemonSet) { e.Spec.Template.Spec.Tolerations = migration }

// legacyDaemonSet runs a DaemonSet on the nodes.
func (d *daemons) legacyDaemonSet(t *testing.T) *appsv1.DaemonSet {
	t.Helper()
	labels := map[string]string{"app": agent, "legacy": "true"}
	legacy := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "legacy", Namespace: d.namespace},
		Spec: appsv1.DaemonSetSpec{
			Selector:       &metav1.LabelSelector{MatchLabels: labels},
			UpdateStrategy: appsv1.DaemonSetUpdateStrategy{Type: appsv1.OnDeleteDaemonSetStrategyType},
			Template:       d.daemon(version("legacy"), tolerating).Spec.Template,
		},
	}
	legacy.Spec.Template.Labels, legacy.Spec.Template.Spec.NodeSelector = labels, d.selector.MatchLabels
	d.create(t, legacy)
	d.legacyIs(t, legacy, "runs", func(s *appsv1.DaemonSetStatus) bool { return int(s.NumberAvailable) == len(d.nodes) })
	return legacy
}

func (d *daemons) legacyIs(t *testing.T, legacy *appsv1.DaemonSet, what string, holds func(*appsv1.DaemonSetStatus) bool) {
	t.Helper()
	eventually(t, "the DaemonSet "+what, func(ctx context.Context) (string, bool) {
		err := d.Get(ctx, client.ObjectKeyFromObject(legacy), legacy)
		return fmt.Sprint(legacy.Status, err), err == nil && legacy.Status.ObservedGeneration == legacy.Generation && holds(&legacy.Status)
	})
}

func (d *daemons) legacyPods(t *testing.T) []corev1.Pod {
	t.Helper()
	var all corev1.PodList
	d.list(t, &all, client.MatchingLabels{"legacy": "true"})
	return all.Items
}

// gone waits until the DaemonSet's pods are gone.
func (d *daemons) gone(t *testing.T) {
	t.Helper()
	eventually(t, "the DaemonSet's pods are gone", func(context.Context) (string, bool) {
		n := len(d.legacyPods(t))
		return fmt.Sprint(n), n == 0
	})
}

// TestDaemonsReplaceADaemonSet that an annotation names, and that makes no more pods, one node at a time.
func TestDaemonsReplaceADaemonSet(t *testing.T) {
	t.Parallel()
	d := newDaemons(t, "replace", 3)
	legacy := d.legacyDaemonSet(t)
	for _, n := range d.nodes {
		patchNode(t, n, map[string]any{"spec": map[string]any{"taints": []corev1.Taint{{Key: migration[0].Key, Effect: corev1.TaintEffectNoSchedule}}}})
	}
	d.patch(t, legacy, map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"tolerations": nil}}}})
	d.legacyIs(t, legacy, "makes no more pods", func(s *appsv1.DaemonSetStatus) bool { return s.DesiredNumberScheduled == 0 })
	since := d.now(t)
	d.start(t, canary, tolerating, func(e *edsv1.ExtendedDaemonSet) { e.Annotations[edsv1.AnnotationOldDaemonset] = legacy.Name })
	d.gone(t)
	d.disrupted(t, since, 1, 0)
}

// TestDaemonsReplaceOrphans of a deleted DaemonSet, one node at a time. A canary is for what comes after the first revision.
func TestDaemonsReplaceOrphans(t *testing.T) {
	t.Parallel()
	d := newDaemons(t, "orphans", 3)
	legacy := d.legacyDaemonSet(t)
	since := d.now(t)
	for _, p := range d.legacyPods(t) {
		d.patch(t, &p, map[string]any{"metadata": map[string]any{"labels": map[string]any{edsv1.LabelName: agent}}})
	}
	if err := d.Delete(t.Context(), legacy, client.PropagationPolicy(metav1.DeletePropagationOrphan)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the pods are orphans", func(context.Context) (string, bool) {
		pods := d.legacyPods(t)
		return fmt.Sprint(len(pods)), len(pods) == 3 && !slices.ContainsFunc(pods, func(p corev1.Pod) bool { return len(p.OwnerReferences) > 0 })
	})
	d.start(t, canary)
	d.disrupted(t, since, 1, 0)
	d.wantStates(t, edsv1.StateRunning)
}

// TestDaemonsBesideADaemonSet that would make its pods again: they stay until it is deleted, which `kubectl eds wait` allows.
func TestDaemonsBesideADaemonSet(t *testing.T) {
	t.Parallel()
	d := newDaemons(t, "beside", 3)
	legacy := d.legacyDaemonSet(t)
	since, before := d.now(t), d.legacyPods(t)
	d.create(t, d.daemon(func(e *edsv1.ExtendedDaemonSet) {
		e.Annotations[edsv1.AnnotationOldDaemonset] = legacy.Name
		e.Spec.Strategy.RollingUpdate.SlowStartAdditiveIncrease = ptr.To(intstr.FromInt32(1))
	}))
	d.eds(t, "wait", agent, "--percent", "100")
	for _, p := range before {
		if d.read(t, p.Name, &p); p.DeletionTimestamp != nil {
			t.Errorf("pod %s of the DaemonSet was deleted", p.Name)
		}
	}
	if err := d.Delete(t.Context(), legacy, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		t.Fatal(err)
	}
	d.gone(t)
	d.settled(t)
	d.disrupted(t, since, 0, 3)
}
