// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/hack/image"
)

// deploy runs a Deployment on the test's machines, with a PodDisruptionBudget over it.
func deploy(t *testing.T, name string, replicas int32, minAvailable int, change ...func(*appsv1.Deployment)) *appsv1.Deployment {
	t.Helper()
	labels := map[string]string{"app": name}
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceDefault},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					TerminationGracePeriodSeconds: ptr.To[int64](1),
					NodeSelector:                  map[string]string{target: labelOf(t)},
					Containers: []corev1.Container{{
						Name: "sleep", Image: image.Busybox, ImagePullPolicy: corev1.PullNever, Command: []string{"sleep", "3600"},
					}},
				},
			},
		},
	}
	for _, do := range change {
		do(d)
	}
	pdb := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceDefault},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: ptr.To(intstr.FromInt(minAvailable)), Selector: &metav1.LabelSelector{MatchLabels: labels},
		},
	}
	for _, o := range []client.Object{d, pdb} {
		if err := world.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { deleteNow(t, o) })
	}
	available(t, d, replicas)
	return d
}

func available(t *testing.T, d *appsv1.Deployment, want int32) {
	t.Helper()
	eventually(t, d.Name+" is available", func(ctx context.Context) (string, bool) {
		err := world.Get(ctx, client.ObjectKeyFromObject(d), d)
		var pdb policyv1.PodDisruptionBudget
		if err == nil {
			err = world.Get(ctx, client.ObjectKeyFromObject(d), &pdb)
		}
		return fmt.Sprint(d.Status, err), err == nil && d.Status.AvailableReplicas == want && pdb.Status.CurrentHealthy == want
	})
}

func podsOf(t *testing.T, app string) []corev1.Pod {
	t.Helper()
	var all corev1.PodList
	if err := persistently(t.Context(), func(ctx context.Context) error {
		return world.List(ctx, &all, client.InNamespace(metav1.NamespaceDefault), client.MatchingLabels{"app": app})
	}); err != nil {
		t.Fatal(err)
	}
	return all.Items
}

// The next node waits until what was evicted from the last one is back, where a budget asks for that.
func TestPlanWaitsForWhatItEvicts(t *testing.T) {
	t.Parallel()
	two := takeMachines(t, 2)
	holder, other := two[0], two[1]
	pinned := map[string]any{"e2e.moult.dev/pinned": labelOf(t)}
	patchNode(t, holder.Name(), map[string]any{"metadata": map[string]any{"labels": pinned}})
	t.Cleanup(func() {
		patchNode(t, holder.Name(), map[string]any{"metadata": map[string]any{"labels": map[string]any{"e2e.moult.dev/pinned": nil}}})
	})
	d := deploy(t, "evicted", 1, 0, func(d *appsv1.Deployment) {
		// The evicted pod has no other node to go to. Its replacement starts when this one is uncordoned, and is then slow.
		d.Spec.Template.Spec.NodeSelector = map[string]string{"e2e.moult.dev/pinned": labelOf(t)}
		d.Spec.Template.Spec.Containers[0].ReadinessProbe = &corev1.Probe{
			InitialDelaySeconds: 3, PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}},
		}
	})
	b := newBudget(t, "drains")
	b.Spec.Gates = &v1alpha1.Gates{Workloads: &v1alpha1.WorkloadsGate{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "nothing"}}}}
	createBudget(t, b)
	p := newPlan(t, "drains", "true")
	p.Spec.Drain = &upgradev1.DrainSpec{}
	p.Spec.Strategy = &v1alpha1.Strategy{
		Order: []v1alpha1.Order{{By: v1alpha1.OrderLabel, Key: corev1.LabelHostname, Values: []string{holder.Name(), other.Name()}}},
	}
	create(t, p)
	complete(t, p.Name)
	for _, m := range two {
		released(t, m.Name(), false)
	}
	var back, next time.Time
	for _, pod := range podsOf(t, d.Name) {
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
				back = c.LastTransitionTime.Time
			}
		}
	}
	for _, j := range jobsOf(t, p.Name) {
		if j.Labels[upgradev1.LabelNode] == other.Name() {
			next = j.CreationTimestamp.Time
		}
	}
	if back.IsZero() || next.Before(back) {
		t.Errorf("the next node was taken at %s, and what was evicted is ready since %s", next, back)
	}
}

// A drain waits until the volumes of what it has evicted are detached, and not for those of a pod that stays.
func TestPlanWaitsForVolumes(t *testing.T) {
	t.Parallel()
	name := takeSimulated(t, 1)[0]
	attached := func(volume string) *storagev1.VolumeAttachment {
		return &storagev1.VolumeAttachment{
			ObjectMeta: metav1.ObjectMeta{Name: "e2e-" + volume},
			Spec: storagev1.VolumeAttachmentSpec{
				Attacher: "e2e.moult.dev", NodeName: name, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &volume},
			},
		}
	}
	here := metav1.ObjectMeta{Name: "volume-stays", Namespace: metav1.NamespaceDefault}
	moves := attached("moves")
	for _, o := range []client.Object{
		&corev1.PersistentVolumeClaim{ObjectMeta: here, Spec: corev1.PersistentVolumeClaimSpec{
			VolumeName: "stays", StorageClassName: ptr.To(""), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		}},
		&corev1.Pod{ObjectMeta: here, Spec: corev1.PodSpec{
			NodeName: name, Containers: []corev1.Container{{Name: "c", Image: "example.com/c"}},
			Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: here.Name},
			}}},
		}},
		attached("stays"), moves,
	} {
		if err := world.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { deleteNow(t, o) })
	}
	p := newPlan(t, "volumes", "true")
	p.Spec.Drain = &upgradev1.DrainSpec{WaitForVolumeDetach: true, PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"drained": "true"}}}
	simulate(p, "awaits")
	simulate(p, "hang")
	create(t, p)
	status(t, p.Name, "waits for the volume that moves alone", func(s *upgradev1.PlanStatus) bool {
		return slices.ContainsFunc(s.Updating, func(u v1alpha1.UnitStatus) bool { return strings.HasSuffix(u.Message, "volumes still attached: moves") })
	})
	if err := world.Delete(t.Context(), moves); err != nil {
		t.Fatal(err)
	}
	status(t, p.Name, "waits for no volume", func(s *upgradev1.PlanStatus) bool {
		return len(s.Updating) == 1 && !strings.Contains(s.Updating[0].Message, "volumes")
	})
	if out, err := kubectl(t.Context(), "annotate", "pods", "-n", namespace, "-l", upgradev1.LabelPlan+"="+p.Name, "test.moult.dev/hang-"); err != nil {
		t.Fatal(err, out)
	}
	complete(t, p.Name)
}
