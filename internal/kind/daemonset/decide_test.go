// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/api/v1alpha1"
)

func TestDecide(t *testing.T) {
	annotated := func(w *world, key, value string) *world {
		w.eds.Annotations = map[string]string{key: value}
		return w
	}
	rolling := func(w *world) *edsv1.ExtendedDaemonSetSpecStrategyRollingUpdate {
		return &w.eds.Spec.Strategy.RollingUpdate
	}
	for name, tc := range map[string]struct {
		world func() *world
		want  string
	}{
		"every node without a pod gets one": {
			func() *world { return newWorld(3) },
			"create n0,n1,n2",
		},
		"the slow start bounds how many are made": {
			func() *world {
				w := newWorld(4)
				rolling(w).SlowStartAdditiveIncrease = ptr.To(intstr.FromInt32(2))
				w.sets[1].Status.Conditions[0].LastTransitionTime = ago(time.Second)
				return w
			},
			"create n0,n1",
		},
		"pods that are being made count, until they are ready": {
			func() *world {
				w := newWorld(4).has("new", starting, 0).has("new", nil, 1)
				rolling(w).MaxParallelPodCreation = ptr.To[int32](1)
				return w
			},
			"",
		},
		"one that does not get ready holds no one up for long": {
			func() *world {
				w := newWorld(3).has("new", unready, 0).has("new", nil, 1)
				rolling(w).MaxParallelPodCreation = ptr.To[int32](1)
				return w
			},
			"create n2",
		},
		"as many are replaced as maxUnavailable says": {
			func() *world { return newWorld(5).has("old", nil, 0, 1, 2, 3, 4) },
			"replace n2/old,n4/old; MaxConcurrent n0,n1,n3",
		},
		"those that are unavailable go first": {
			func() *world { return newWorld(5).has("old", nil, 0, 1, 2).has("old", unready, 3, 4) },
			"replace n3/old,n4/old; MaxConcurrent n0,n1,n2",
		},
		"a node between two pods holds its place": {
			func() *world {
				return newWorld(5).has("old", nil, 0, 1, 2).has("old", going, 3).has("new", starting, 4)
			},
			"MaxConcurrent n0,n1,n2",
		},
		"one on a node that is not ready does not": {
			func() *world { return newWorld(5).has("old", nil, 0, 1).has("new", unready, 2, 3, 4).down(2, 3, 4) },
			"replace n0/old,n1/old",
		},
		"a node that is not ready is in no wave before others": {
			func() *world {
				w := newWorld(3).has("old", nil, 0, 1, 2).down(0)
				w.nodes[0].Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}}
				w.eds.Spec.Strategy.Waves = []v1alpha1.Wave{{Size: ptr.To(intstr.FromInt32(1))}}
				return w
			},
			"replace n2/old; NodeNotReady n0; WavePending n1",
		},
		"an outdated pod on a node that is not ready stays": {
			func() *world { return newWorld(3).has("old", nil, 0).has("new", nil, 1, 2).down(0) },
			"NodeNotReady n0",
		},
		"pods that are not scheduled do not count, as far as maxPodSchedulerFailure goes": {
			func() *world {
				w := newWorld(5).has("old", nil, 0, 1, 2).has("new", unscheduled, 3, 4)
				rolling(w).MaxPodSchedulerFailure = ptr.To(intstr.FromInt32(1))
				return w
			},
			"replace n2/old; MaxConcurrent n0,n1",
		},
		"old pods that are not scheduled go last, as far as maxPodSchedulerFailure goes": {
			func() *world {
				w := newWorld(6).has("old", nil, 0, 1).has("old", unscheduled, 2, 3, 4, 5)
				rolling(w).MaxPodSchedulerFailure = ptr.To(intstr.FromInt32(4))
				return w
			},
			"replace n0/old,n1/old; MaxConcurrent n2,n3,n4,n5",
		},
		"those beyond that go first, as others that are unavailable": {
			func() *world {
				w := newWorld(6).has("old", nil, 0, 1).has("old", unscheduled, 2, 3, 4, 5)
				rolling(w).MaxPodSchedulerFailure = ptr.To(intstr.FromInt32(3))
				return w
			},
			"replace n0/old,n5/old; MaxConcurrent n1,n2,n3,n4",
		},
		"and when there are no others they are replaced, too": {
			func() *world {
				w := newWorld(4).has("new", nil, 0, 1).has("old", unscheduled, 2, 3)
				rolling(w).MaxPodSchedulerFailure = ptr.To(intstr.FromInt32(4))
				return w
			},
			"replace n2/old,n3/old",
		},
		"deletions do not outrun creations": {
			func() *world {
				w := newWorld(5).has("old", nil, 0, 1, 2, 3, 4)
				rolling(w).MaxUnavailable, rolling(w).MaxParallelPodCreation = ptr.To(intstr.FromString("100%")), ptr.To[int32](2)
				return w
			},
			"replace n2/old,n4/old; SlowStart n0,n1,n3",
		},
		"reconcileFrequency spaces the batches": {
			func() *world {
				w := newWorld(3).has("old", nil, 0, 1, 2)
				w.eds.Spec.Strategy.ReconcileFrequency = &metav1.Duration{Duration: 10 * time.Second}
				w.sets[1].Status.Conditions = append(w.sets[1].Status.Conditions, edsv1.Condition{Type: edsv1.ConditionPodDeletion, Status: metav1.ConditionTrue, LastUpdateTime: ago(4 * time.Second)})
				return w
			},
			"MaxConcurrent n1; SlowStart n0,n2",
		},
		"but not creations": {
			func() *world {
				w := newWorld(2).has("new", nil, 0)
				w.eds.Spec.Strategy.ReconcileFrequency = &metav1.Duration{Duration: time.Hour}
				return w
			},
			"create n1",
		},
		"a pause keeps outdated pods, and makes missing ones": {
			func() *world {
				return annotated(newWorld(3).has("old", nil, 0, 1), edsv1.AnnotationRollingUpdatePaused, "true")
			},
			"create n2; Paused n0,n1",
		},
		"only true pauses": {
			func() *world {
				return annotated(newWorld(1).has("old", nil, 0), edsv1.AnnotationRollingUpdatePaused, "yes")
			},
			"replace n0/old",
		},
		"what is frozen makes none": {
			func() *world {
				return annotated(newWorld(3).has("old", nil, 0, 1), edsv1.AnnotationRolloutFrozen, "true")
			},
			"Paused n0,n1",
		},
		"OnDelete leaves it to people": {
			func() *world {
				w := newWorld(3).has("old", nil, 0, 1)
				w.eds.Spec.Strategy.Type = edsv1.StrategyOnDelete
				return w
			},
			"create n2; OnDelete n0,n1",
		},
		"with surge the new pod comes first": {
			func() *world {
				w := newWorld(3).has("old", nil, 0, 1, 2)
				rolling(w).MaxUnavailable, rolling(w).MaxSurge = nil, ptr.To(intstr.FromInt32(1))
				return w
			},
			"create n2; MaxConcurrent n0,n1",
		},
		"and the old one goes when it is available": {
			func() *world {
				w := newWorld(3).has("old", nil, 0, 1, 2).has("new", nil, 0).has("new", starting, 1)
				rolling(w).MaxUnavailable, rolling(w).MaxSurge = nil, ptr.To(intstr.FromInt32(2))
				return w
			},
			"done n0/old; MaxConcurrent n2",
		},
		"but for a port of the host that both need": {
			func() *world {
				w := newWorld(2)
				for i := range w.sets {
					c := &w.sets[i].Spec.Template.Spec.Containers[0]
					c.Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 80}}
					w.sets[i].Spec.TemplateGeneration = TemplateHash(&w.sets[i].Spec.Template)
				}
				w.eds.Spec.Template.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 80}}
				w.has("old", nil, 0, 1)
				rolling(w).MaxUnavailable, rolling(w).MaxSurge = nil, ptr.To(intstr.FromInt32(1))
				return w
			},
			"replace n1/old; MaxConcurrent n0",
		},
		"of two pods without surge one goes": {
			func() *world {
				return newWorld(2).has("old", nil, 0).has("new", nil, 0).has("old", nil, 1).has("new", starting, 1)
			},
			"clean n0/old,n1/new; replace n1/old",
		},
		"pods without an owner are outdated ones": {
			func() *world { return newWorld(3).has("old", orphan, 0, 1, 2) },
			"replace n0/orphan,n2/orphan; MaxConcurrent n1",
		},
		"where a DaemonSet would make its pod again, the new one starts beside it": {
			func() *world {
				return newWorld(3).has("old", nil, 0, 1, 2).keeps().has("new", nil, 0).has("new", starting, 1)
			},
			"create n2",
		},
		"or waits, if both need a port of the host": {
			func() *world {
				w := newWorld(1)
				port := []corev1.ContainerPort{{ContainerPort: 80, HostPort: 80}}
				for i := range w.sets {
					w.sets[i].Spec.Template.Spec.Containers[0].Ports = port
					w.sets[i].Spec.TemplateGeneration = TemplateHash(&w.sets[i].Spec.Template)
				}
				w.eds.Spec.Template.Spec.Containers[0].Ports = port
				return w.has("old", nil, 0).keeps()
			},
			"NodeUnfit n0",
		},
		"a pod that has ended goes at once": {
			func() *world { return newWorld(2).has("new", ended, 0).has("new", nil, 1) },
			"clean n0/new",
		},
		"a node that its new pod may have broken holds its slot": {
			func() *world { return newWorld(4).has("new", unready, 0).has("old", nil, 1, 2, 3).breaks(0) },
			"replace n2/old; MaxConcurrent n1,n3",
		},
		"and has failed": {
			func() *world {
				w := newWorld(4).has("new", unready, 0).has("old", nil, 1, 2, 3).breaks(0)
				w.eds.Spec.Strategy.MaxFailures = ptr.To(intstr.FromInt32(0))
				return w
			},
			"Halted n1,n2,n3; PodFailed n0",
		},
		"one that broke later holds none": {
			func() *world { return newWorld(4).has("new", unreadyLater, 0).has("old", nil, 1, 2, 3).breaks(0) },
			"replace n2/old,n3/old; MaxConcurrent n1",
		},
		"a node that another rollout has is ignored": {
			func() *world {
				w := newWorld(3).has("old", nil, 0, 1, 2)
				w.nodes[0].Annotations[v1alpha1.AnnotationClaims] = `[{"rollout":"Plan/a/b","uid":"u","revision":"r","turn":"t","since":"2026-03-04T11:00:00Z"}]`
				return w
			},
			"replace n1/old,n2/old; Claimed n0",
		},
		"and so is one that a person has drained": {
			func() *world {
				w := newWorld(3).has("old", nil, 0, 1, 2)
				w.nodes[0].Status.Conditions = append(w.nodes[0].Status.Conditions, corev1.NodeCondition{Type: corev1.NodeDrained, Status: corev1.ConditionTrue})
				return w
			},
			"replace n1/old,n2/old; NodeNotReady n0",
		},
		"a node that is ready, no one says since when, is ready": {
			func() *world {
				w := newWorld(1).has("old", nil, 0)
				w.nodes[0].Status.Conditions[0].LastTransitionTime = metav1.Time{}
				return w
			},
			"replace n0/old",
		},
		"an untolerated taint keeps what runs there": {
			func() *world {
				w := newWorld(3).has("old", nil, 0).has("new", nil, 1)
				for _, n := range w.nodes {
					n.Spec.Taints = []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoSchedule}}
				}
				return w
			},
			"NodeUnfit n0",
		},
		"unless it says NoExecute": {
			func() *world {
				w := newWorld(2).has("old", nil, 0).has("new", nil, 1)
				w.nodes[0].Spec.Taints = []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoExecute}}
				return w
			},
			"clean n0/old",
		},
		"a pod on a node that is gone goes": {
			func() *world {
				w := newWorld(2).has("new", nil, 0, 1)
				w.nodes = w.nodes[:1]
				return w
			},
			"clean n1/new",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := tc.world().look(t).show()
			if got != tc.want {
				t.Errorf("got  %q\nwant %q", got, tc.want)
			}
		})
	}
}
