// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
)

// legacyDaemonSet runs what an ExtendedDaemonSet is to run as a DaemonSet, on the same nodes.
func (d *daemons) legacyDaemonSet(t *testing.T, change func(*appsv1.DaemonSet)) *appsv1.DaemonSet {
	t.Helper()
	e := d.daemon("agent", version("legacy"))
	labels := map[string]string{"app": "agent", "legacy": "true"}
	legacy := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "legacy", Namespace: d.namespace},
		Spec: appsv1.DaemonSetSpec{
			Selector:       &metav1.LabelSelector{MatchLabels: labels},
			UpdateStrategy: appsv1.DaemonSetUpdateStrategy{Type: appsv1.OnDeleteDaemonSetStrategyType},
			Template:       e.Spec.Template,
		},
	}
	legacy.Spec.Template.Labels = labels
	legacy.Spec.Template.Spec.NodeSelector = d.selector.MatchLabels
	change(legacy)
	d.create(t, legacy)
	eventually(t, "the DaemonSet runs", func(ctx context.Context) (string, bool) {
		err := d.Get(ctx, client.ObjectKeyFromObject(legacy), legacy)
		return fmt.Sprint(legacy.Status, err), int(legacy.Status.NumberAvailable) == len(d.nodes)
	})
	return legacy
}

func (d *daemons) podsOf(t *testing.T, legacy *appsv1.DaemonSet) []corev1.Pod {
	t.Helper()
	var all corev1.PodList
	if err := d.List(t.Context(), &all, client.InNamespace(d.namespace), client.MatchingLabels(legacy.Spec.Selector.MatchLabels)); err != nil {
		t.Fatal(err)
	}
	return all.Items
}

// surging replaces pods beside the old ones, where it is more than none.
func surging(nodes int32) func(*edsv1.ExtendedDaemonSet) {
	return func(e *edsv1.ExtendedDaemonSet) {
		if nodes > 0 {
			e.Spec.Strategy.RollingUpdate.MaxSurge = ptr.To(intstr.FromInt32(nodes))
		}
	}
}

// migrated checks that no more nodes than allowed were without an available pod, of whichever kind, at once.
func (d *daemons) migrated(t *testing.T, since uint64, began time.Time, maxSurge int32) {
	t.Helper()
	anyone := func(*corev1.Pod) bool { return true }
	allowed := 1
	if maxSurge > 0 {
		allowed = 0
	}
	if down := d.mostDown(t, since, anyone); down != allowed && !d.faltered(t, began) {
		t.Errorf("at most %d nodes were without an available pod, want %d", down, allowed)
	}
	most, double := d.mostOnANode(t, anyone)
	if (most > 1+int(maxSurge) || double > int(maxSurge)) && !d.faltered(t, began) {
		t.Errorf("there were %d pods on a node, and more than one on %d nodes at once", most, double)
	}
}

// migrateOrphans takes over the pods that a DaemonSet has left: they bear the label of the ExtendedDaemonSet, and are replaced
// as those of a revision before.
func migrateOrphans(maxSurge int32) func(*testing.T, *daemons) {
	return func(t *testing.T, d *daemons) {
		legacy := d.legacyDaemonSet(t, func(*appsv1.DaemonSet) {})
		since, began := d.now(t), time.Now()
		for _, p := range d.podsOf(t, legacy) {
			d.patch(t, &p, map[string]any{"metadata": map[string]any{"labels": map[string]any{edsv1.LabelName: "agent"}}})
		}
		if err := d.Delete(t.Context(), legacy, client.PropagationPolicy(metav1.DeletePropagationOrphan)); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the pods are orphans", func(context.Context) (string, bool) {
			pods := d.podsOf(t, legacy)
			return fmt.Sprint(len(pods)), len(pods) == 3 && !slices.ContainsFunc(pods, func(p corev1.Pod) bool { return len(p.OwnerReferences) > 0 })
		})
		// A canary is for what comes after the first revision.
		d.start(t, d.daemon("agent", canary(0), surging(maxSurge)))
		d.migrated(t, since, began, maxSurge)
		if seen := states(d.history(t), "agent"); !slices.Equal(seen, []edsv1.State{edsv1.StateRunning}) {
			t.Errorf("states are %q", seen)
		}
	}
}

// A DaemonSet that is named by annotation, and makes no more pods because it does not bear its nodes' taint any more, is
// replaced a node at a time.
func TestDaemonsReplaceADaemonSet(t *testing.T) {
	t.Parallel()
	for name, maxSurge := range map[string]int32{"olddaemonset": 0, "olddaemonset-surge": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := simulatedDaemons(t, name, 3)
			bears := []corev1.Toleration{{Key: "e2e.moult.dev/migrate", Operator: corev1.TolerationOpExists}}
			for _, n := range d.nodes {
				patchNode(t, n, map[string]any{"spec": map[string]any{"taints": []corev1.Taint{{Key: bears[0].Key, Effect: corev1.TaintEffectNoSchedule}}}})
			}
			legacy := d.legacyDaemonSet(t, func(s *appsv1.DaemonSet) { s.Spec.Template.Spec.Tolerations = bears })
			d.patch(t, legacy, map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"tolerations": nil}}}})
			eventually(t, "the DaemonSet makes no more pods", func(ctx context.Context) (string, bool) {
				err := d.Get(ctx, client.ObjectKeyFromObject(legacy), legacy)
				s := legacy.Status
				return fmt.Sprint(s, err), s.ObservedGeneration == legacy.Generation && s.DesiredNumberScheduled == 0 && len(d.podsOf(t, legacy)) == 3
			})
			since, began := d.now(t), time.Now()
			d.start(t, d.daemon("agent", canary(0), surging(maxSurge), func(e *edsv1.ExtendedDaemonSet) {
				e.Annotations[edsv1.AnnotationOldDaemonset] = legacy.Name
				e.Spec.Template.Spec.Tolerations = bears
			}))
			d.gone(t, legacy)
			d.migrated(t, since, began, maxSurge)
			if err := d.Delete(t.Context(), legacy); err != nil {
				t.Fatal(err)
			}
			d.settled(t, "agent")
		})
	}
}

// gone waits until a DaemonSet has no pods any more.
func (d *daemons) gone(t *testing.T, legacy *appsv1.DaemonSet) {
	t.Helper()
	eventually(t, "the DaemonSet's pods are gone", func(context.Context) (string, bool) {
		n := len(d.podsOf(t, legacy))
		return fmt.Sprint(n), n == 0
	})
}

// A DaemonSet may go as soon as `kubectl eds wait` ends, also when that was called in the moment in which the ExtendedDaemonSet
// was made.
func TestDaemonsWaitBesideADaemonSet(t *testing.T) {
	t.Parallel()
	program, err := builtPlugin()
	if err != nil {
		t.Fatal(err)
	}
	eds := filepath.Join(t.TempDir(), "kubectl-eds")
	if err := os.Symlink(program, eds); err != nil {
		t.Fatal(err)
	}
	d := simulatedDaemons(t, "beside-wait", 3)
	legacy := d.legacyDaemonSet(t, func(*appsv1.DaemonSet) {})
	since, began := d.now(t), time.Now()
	d.create(t, d.daemon("agent", func(e *edsv1.ExtendedDaemonSet) {
		e.Annotations[edsv1.AnnotationOldDaemonset] = legacy.Name
		e.Spec.Strategy.RollingUpdate.SlowStartAdditiveIncrease = ptr.To(intstr.FromInt32(1))
	}))
	said, err := exec.CommandContext(t.Context(), eds, "wait", "agent", "--kubeconfig", world.Kubeconfig(), "-n", d.namespace, "--percent", "100", "--timeout", "2m").CombinedOutput()
	if err != nil {
		t.Fatalf("wait: %v\n%s", err, said)
	}
	if err := d.Delete(t.Context(), legacy, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		t.Fatal(err)
	}
	d.gone(t, legacy)
	d.settled(t, "agent")
	if down := d.mostDown(t, since, func(*corev1.Pod) bool { return true }); down != 0 && !d.faltered(t, began) {
		t.Errorf("%d nodes were without an available pod at once, want none; it was waited as long as this was said:\n%s", down, said)
	}
}

// The pods of a DaemonSet that would make them again stay: the new ones are made beside them, and they go when it is deleted,
// with them or without.
func TestDaemonsBesideADaemonSet(t *testing.T) {
	t.Parallel()
	for name, how := range map[string]metav1.DeletionPropagation{
		"beside": metav1.DeletePropagationBackground, "beside-orphans": metav1.DeletePropagationOrphan,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := simulatedDaemons(t, name, 3)
			legacy := d.legacyDaemonSet(t, func(*appsv1.DaemonSet) {})
			var before []types.UID
			for _, p := range d.podsOf(t, legacy) {
				before = append(before, p.UID)
			}
			since, began := d.now(t), time.Now()
			d.start(t, d.daemon("agent", func(e *edsv1.ExtendedDaemonSet) { e.Annotations[edsv1.AnnotationOldDaemonset] = legacy.Name }))
			lasts(t, 2*time.Second, "the DaemonSet keeps its pods", func(context.Context) error {
				pods := d.podsOf(t, legacy)
				if len(pods) != 3 || slices.ContainsFunc(pods, func(p corev1.Pod) bool { return !slices.Contains(before, p.UID) || !podAvailable(&p) }) {
					return errReplaced
				}
				return nil
			})
			if err := d.Delete(t.Context(), legacy, client.PropagationPolicy(how)); err != nil {
				t.Fatal(err)
			}
			d.gone(t, legacy)
			d.settled(t, "agent")
			if down := d.mostDown(t, since, func(*corev1.Pod) bool { return true }); down != 0 && !d.faltered(t, began) {
				t.Errorf("%d nodes were without an available pod at once, want none", down)
			}
			d.onePerNode(t, "agent")
		})
	}
}
