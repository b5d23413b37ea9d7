// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
)

const (
	daemonName = "daemon"
	// parallel is how many pods may be in creation at once: what Kubernetes' own controller makes in one go.
	parallel = 250
)

// daemonSubject is what keeps a pod on each node.
type daemonSubject struct {
	name      string
	namespace string
	by        asker
	object    func(image string) client.Object
	// reports whether its status says that so many pods are as they should be.
	reports func(o client.Object, nodes int) bool
}

func (s *daemonSubject) builtin() bool { return s.by == byBuiltin }

// extended is the ExtendedDaemonSet, carried out by the operator.
func (b *bench) extended() *daemonSubject {
	return &daemonSubject{
		name: "ExtendedDaemonSet", namespace: "extended", by: byOperator,
		object: func(image string) client.Object {
			return &edsv1.ExtendedDaemonSet{
				ObjectMeta: metav1.ObjectMeta{Namespace: "extended", Name: daemonName},
				Spec: edsv1.ExtendedDaemonSetSpec{
					Template: b.daemonTemplate(image),
					Strategy: edsv1.ExtendedDaemonSetSpecStrategy{
						RollingUpdate: edsv1.ExtendedDaemonSetSpecStrategyRollingUpdate{
							MaxUnavailable:            ptr.To(intstr.FromString(b.daemons.maxUnavailable())),
							MaxParallelPodCreation:    ptr.To[int32](parallel),
							SlowStartAdditiveIncrease: ptr.To(intstr.FromInt32(parallel)),
						},
					},
				},
			}
		},
		reports: func(o client.Object, nodes int) bool {
			set, ok := o.(*edsv1.ExtendedDaemonSet)
			if !ok {
				return false
			}
			is, n := &set.Status, int32(nodes)
			return is.ObservedGeneration == set.Generation && is.State == edsv1.StateRunning &&
				is.Desired == n && is.UpToDate == n && is.Available == n
		},
	}
}

// builtin is Kubernetes' own DaemonSet.
func (b *bench) builtin() *daemonSubject {
	return &daemonSubject{
		name: "DaemonSet", namespace: "builtin", by: byBuiltin,
		object: func(image string) client.Object {
			template := b.daemonTemplate(image)
			return &appsv1.DaemonSet{
				ObjectMeta: metav1.ObjectMeta{Namespace: "builtin", Name: daemonName},
				Spec: appsv1.DaemonSetSpec{
					Selector: &metav1.LabelSelector{MatchLabels: template.Labels},
					Template: template,
					UpdateStrategy: appsv1.DaemonSetUpdateStrategy{
						Type:          appsv1.RollingUpdateDaemonSetStrategyType,
						RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxUnavailable: ptr.To(intstr.FromString(b.daemons.maxUnavailable()))},
					},
				},
			}
		},
		reports: func(o client.Object, nodes int) bool {
			set, ok := o.(*appsv1.DaemonSet)
			if !ok {
				return false
			}
			is, n := &set.Status, int32(nodes)
			return is.ObservedGeneration == set.Generation &&
				is.DesiredNumberScheduled == n && is.UpdatedNumberScheduled == n && is.NumberAvailable == n
		},
	}
}

// daemonTemplate is that of both.
func (b *bench) daemonTemplate(image string) corev1.PodTemplateSpec {
	t := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": daemonName}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: image}}},
	}
	if b.daemons.startSeconds > 0 {
		t.Annotations = map[string]string{"test.moult.dev/start-seconds": strconv.FormatFloat(b.daemons.startSeconds, 'f', -1, 64)}
	}
	return t
}

func daemonImage(version int) string { return fmt.Sprintf("example.com/daemon:v%d", version) }

func (b *bench) updateDaemons(ctx context.Context, s *daemonSubject, image string) error {
	patch := fmt.Appendf(nil, `{"spec":{"template":{"spec":{"containers":[{"name":"main","image":%q}]}}}}`, image)
	return b.plans.Patch(ctx, s.object(image), client.RawPatch("application/merge-patch+json", patch))
}
