// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/internal/kind/daemonset"
)

const (
	labelPod        = "cluster-autoscaler.kubernetes.io/daemonset-pod"
	annotationsHash = "extendeddaemonset.datadoghq.com/templatehash"
)

func newDaemonSet() *edsv1.ExtendedDaemonSet {
	d := &edsv1.ExtendedDaemonSet{ObjectMeta: metav1.ObjectMeta{
		Namespace: "a", Name: "d", UID: "u1", Labels: map[string]string{"team": "infra"},
		Annotations: map[string]string{"note": "x", corev1.LastAppliedConfigAnnotation: "{}"},
	}}
	d.Spec.Template = corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Name: "ignored", Labels: map[string]string{"app": "d"}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "c", Image: "pause:3.10",
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}},
		}}},
	}
	return d
}

func TestNewPodTemplate(t *testing.T) {
	d := newDaemonSet()
	d.Labels[labelPod] = "false"
	before := d.DeepCopy()
	got := newPodTemplate(d)
	if diff := cmp.Diff(before, d); diff != "" {
		t.Errorf("it changes the original (-want +got):\n%s", diff)
	}
	hash := daemonset.TemplateHash(&d.Spec.Template)
	want := &corev1.PodTemplate{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "a", Name: "d", Labels: map[string]string{"team": "infra", labelPod: "true"},
			Annotations: map[string]string{"note": "x", annotationsHash: hash},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "datadoghq.com/v1alpha1", Kind: "ExtendedDaemonSet", Name: "d", UID: "u1",
				Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
			}},
		},
		Template: *d.Spec.Template.DeepCopy(),
	}
	want.Template.Name = ""
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	// A daemon set may have neither labels nor annotations.
	d.Labels, d.Annotations = nil, nil
	if got := newPodTemplate(d); len(got.Labels) != 1 || len(got.Annotations) != 1 {
		t.Errorf("got %v", got)
	}
}

func TestIsCurrentPodTemplate(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(have *corev1.PodTemplate)
		want   bool
	}{
		"nothing":        {func(*corev1.PodTemplate) {}, true},
		"defaults":       {func(have *corev1.PodTemplate) { have.Template.Spec.RestartPolicy = corev1.RestartPolicyAlways }, true},
		"a label":        {func(have *corev1.PodTemplate) { have.Labels["team"] = "apps" }, false},
		"one label more": {func(have *corev1.PodTemplate) { have.Labels["new"] = "x" }, false},
		"an annotation":  {func(have *corev1.PodTemplate) { delete(have.Annotations, "note") }, false},
		"the hash":       {func(have *corev1.PodTemplate) { have.Annotations[annotationsHash] = "other" }, false},
		"no owner":       {func(have *corev1.PodTemplate) { have.OwnerReferences = nil }, false},
	} {
		want := newPodTemplate(newDaemonSet())
		have := want.DeepCopy()
		tc.change(have)
		if got := isCurrentPodTemplate(have, want); got != tc.want {
			t.Errorf("%s: got %t", name, got)
		}
	}
}

func TestOwnerOfPodTemplate(t *testing.T) {
	by := func(kind, name string, uid types.UID) func(*corev1.PodTemplate) {
		return func(have *corev1.PodTemplate) {
			have.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: name, UID: uid, Controller: ptr.To(true)}}
		}
	}
	for name, tc := range map[string]struct {
		change func(have *corev1.PodTemplate)
		want   string
	}{
		"made for it":             {func(*corev1.PodTemplate) {}, "own"},
		"it has lost its owner":   {func(have *corev1.PodTemplate) { have.OwnerReferences = nil }, "own"},
		"of one that is gone":     {by("ExtendedDaemonSet", "d", "u0"), "predecessor's"},
		"of another":              {by("ExtendedDaemonSet", "e", "u2"), "foreign"},
		"of another kind":         {by("StatefulSet", "d", "u2"), "foreign"},
		"another owner's":         {func(have *corev1.PodTemplate) { have.ObjectMeta = metav1.ObjectMeta{Name: "d"} }, "foreign"},
		"only the label is right": {func(have *corev1.PodTemplate) { have.OwnerReferences, have.Annotations = nil, nil }, "foreign"},
	} {
		have := newPodTemplate(newDaemonSet())
		tc.change(have)
		got, d := "own", newDaemonSet()
		switch {
		case isPredecessors(metav1.GetControllerOf(have), d):
			got = "predecessor's"
		case isForeignPodTemplate(have, d):
			got = "foreign"
		}
		if got != tc.want {
			t.Errorf("%s: got %s, want %s", name, got, tc.want)
		}
	}
}
