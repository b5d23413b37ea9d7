// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/node"
)

// The conditions tell what holds the drain, when that changes, and not more often than every 10 seconds.
func TestDrainTellsWhatHoldsIt(t *testing.T) {
	w := newWorld(t, aNode("n1"), pod("api", "n1"), pod("slow", "n1"), pod("quick", "n1"))
	w.env["SYSTEM_UPGRADE_PLAN_NAME"] = "k3s"
	w.held["api"] = 4
	w.stuck["slow"] = true
	// The pod that is quick ends after 5 seconds, that which is slow after 12; the budget yields after 20.
	w.at[12*time.Second] = func() { w.stuck["slow"] = false }
	draining := func(want string) func() {
		return func() {
			w.t.Helper()
			expect(t, w.Since(start).String(), "True "+k3s+": "+want, w.conditions("n1")[corev1.NodeDrainInProgress])
		}
	}
	w.at[4*time.Second] = draining("3 pods left; " + held)
	w.at[9*time.Second] = draining("3 pods left; " + held)
	w.at[11*time.Second] = draining("2 pods left; " + held)
	w.at[19*time.Second] = draining("2 pods left; " + held)
	w.at[21*time.Second] = draining("1 pod left")
	got := w.run(t.Context(), "drain n1")
	expect(t, "error", "", got.Error)
	expect(t, "time", 21*time.Second, w.Since(start))
	expect(t, "conditions", map[corev1.NodeConditionType]string{
		"MaintenanceInProgress": "True " + k3s + ": the node is in maintenance",
		"DrainInProgress":       "False " + k3s + ": the drain is over",
		"Drained":               "True " + k3s + ": the node is drained",
	}, w.conditions("n1"))
}

// A drain that nothing holds writes the node's status twice.
func TestDrainTellsLittle(t *testing.T) {
	w := newWorld(t, aNode("n1"), pod("a", "n1"), pod("b", "n1"))
	w.run(t.Context(), "drain n1")
	expect(t, "writes", 2, w.statuses)
	w.run(t.Context(), "drain n1")
	expect(t, "writes of the second drain", 4, w.statuses)
	expect(t, "conditions", map[corev1.NodeConditionType]string{
		"MaintenanceInProgress": "True moult drain: the node is in maintenance",
		"DrainInProgress":       "False moult drain: the drain is over",
		"Drained":               "True moult drain: the node is drained",
	}, w.conditions("n1"))
}

func TestDryRunTellsAndRecordsNothing(t *testing.T) {
	for _, how := range []string{"client", "server"} {
		w := newWorld(t, aNode("n1"), pod("a", "n1"), pod("u", "n1", unowned))
		w.run(t.Context(), "drain n1 --force --exclude-from-load-balancers --dry-run="+how)
		w.run(t.Context(), "drain n1 --exclude-from-load-balancers --dry-run="+how)
		expect(t, how, 0, w.statuses)
		expect(t, how, nil, w.marks("n1"))
	}
}

// Whose pods are evicted is recorded before the first eviction, and kept beside what was.
func TestDrainRecordsEvictions(t *testing.T) {
	of := func(apiVersion, kind, name string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			ofKind(kind, name)(p)
			p.OwnerReferences[0].APIVersion = apiVersion
		}
	}
	old := func(n *corev1.Node) {
		n.Annotations = map[string]string{v1alpha1.AnnotationEvicted: `["StatefulSet/shop/db"]`}
	}
	w := newWorld(t, aNode("n1", old), pod("a", "n1"), pod("b", "n1"), pod("s", "n1", of("apps/v1", "StatefulSet", "s")),
		pod("r", "n1", of("v1", "ReplicationController", "r")), pod("j", "n1", of("batch/v1", "Job", "j")),
		pod("d", "n1", of("apps/v1", "DaemonSet", "ds")), pod("u", "n1", unowned), pod("elsewhere", "n2", of("apps/v1", "ReplicaSet", "x")))
	w.at[time.Second] = func() {
		late := pod("late", "n1", of("apps/v1", "ReplicaSet", "late"))
		late.CreationTimestamp = metav1.NewTime(start.Add(time.Second))
		if err := w.Create(t.Context(), late); err != nil {
			t.Error(err)
		}
	}
	w.stuck["a"] = true
	w.at[3*time.Second] = func() { w.stuck["a"] = false }
	const first = `"ReplicationController/web/r","StatefulSet/shop/db","StatefulSet/web/s"]`
	w.before = func(name string) {
		if name != "late" {
			expect(t, "before "+name, `["ReplicaSet/web/rs",`+first, w.node("n1").Annotations[v1alpha1.AnnotationEvicted])
		}
	}
	got := w.run(t.Context(), "drain n1 --force --ignore-daemonsets")
	expect(t, "error", "", got.Error)
	expect(t, "record", map[string]string{v1alpha1.AnnotationEvicted: `["ReplicaSet/web/late","ReplicaSet/web/rs",` + first}, w.marks("n1"))
}

// A node that waits for its turn has nothing evicted, and its record may be taken off: it is written again before the first
// eviction, when the node's condition says already that a drain goes on.
func TestDrainRecordsAgainWhatWasForgotten(t *testing.T) {
	w := newWorld(t, aNode("n1"), aNode("n2"), pod("a", "n1"), pod("b", "n2"))
	w.at[time.Second] = func() {
		if err := node.ForgetEvicted(t.Context(), w, w.node("n2"), node.Workload{Kind: "ReplicaSet", Namespace: "web", Name: "rs"}); err != nil {
			t.Error(err)
		}
		expect(t, "marks meanwhile", nil, w.marks("n2"))
	}
	w.before = func(name string) {
		if name == "b" {
			expect(t, "record", `["ReplicaSet/web/rs"]`, w.node("n2").Annotations[v1alpha1.AnnotationEvicted])
			expect(t, "condition", "True moult drain: 1 pod left", w.conditions("n2")[corev1.NodeDrainInProgress])
		}
	}
	expect(t, "error", "", w.run(t.Context(), "drain n1 n2").Error)
	expect(t, "pods", nil, w.pods())
}

func TestDrainThatTouchesNothingRecordsNothing(t *testing.T) {
	w := newWorld(t, aNode("n1"), pod("a", "n1"), pod("u", "n1", unowned))
	w.run(t.Context(), "drain n1")
	expect(t, "marks", nil, w.marks("n1"))
}

func TestDrainWaitsForVolumes(t *testing.T) {
	attach := func(volume string) *storagev1.VolumeAttachment {
		return &storagev1.VolumeAttachment{
			ObjectMeta: metav1.ObjectMeta{Name: "csi-" + volume},
			Spec: storagev1.VolumeAttachmentSpec{
				Attacher: "disks.example.com", NodeName: "n1", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &volume},
			},
		}
	}
	newVolumes := func(t *testing.T) *world {
		w := newWorld(t, aNode("n1"), pod("a", "n1"), attach("pv-1"), attach("pv-2"))
		w.at[4*time.Second] = func() {
			if err := w.Delete(t.Context(), attach("pv-1")); err != nil {
				t.Error(err)
			}
		}
		return w
	}
	began := []string{
		"node/n1 cordoned", "evicting pod web/a", "pod/a evicted", "waiting for volume pv-1 to be detached",
		"waiting for volume pv-2 to be detached", "volume/pv-1 detached",
	}
	t.Run("to the end", func(t *testing.T) {
		w := newVolumes(t)
		w.at[14*time.Second] = func() {
			expect(t, "condition", "True moult drain: no pods left; volume pv-2 is still attached", w.conditions("n1")[corev1.NodeDrainInProgress])
			if err := w.Delete(t.Context(), attach("pv-2")); err != nil {
				t.Error(err)
			}
		}
		expect(t, "run", ran{Out: append(began, "volume/pv-2 detached", "node/n1 drained")}, w.run(t.Context(), "drain n1 --wait-for-volume-detach"))
	})
	t.Run("until the time is over", func(t *testing.T) {
		w := newVolumes(t)
		expect(t, "run", ran{
			Out: append(began, "node/n1 uncordoned"), ErrOut: []string{"node/n1 not drained"},
			Error: "draining node n1, its time is over, the node is skipped, and these volumes are still attached:\n  volume pv-2 is still attached",
		}, w.run(t.Context(), "drain n1 --wait-for-volume-detach --timeout=20s --on-timeout=Skip"))
		expect(t, "time", 20*time.Second, w.Since(start))
		expect(t, "exit code", 44, w.exitCode())
	})
	t.Run("until the time is over, and it forces", func(t *testing.T) {
		w := newVolumes(t)
		got := w.run(t.Context(), "drain n1 --wait-for-volume-detach --timeout=20s --on-timeout=Force")
		expect(t, "error", "", got.Error)
		expect(t, "time", 20*time.Second, w.Since(start))
	})
	t.Run("not at all", func(t *testing.T) {
		w := newVolumes(t)
		got := w.run(t.Context(), "drain n1")
		expect(t, "out", append(began[:3:3], "node/n1 drained"), got.Out)
	})
}
