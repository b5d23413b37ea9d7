// SPDX-License-Identifier: Apache-2.0

package podtemplate

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/internal/kind/daemonset"
)

// build is the PodTemplate of an ExtendedDaemonSet, with its labels and annotations. What kubectl apply remembers there of
// the ExtendedDaemonSet itself is left out: on a PodTemplate it would mislead the next kubectl apply.
func build(d *edsv1.ExtendedDaemonSet) (*corev1.PodTemplate, error) {
	hash, err := daemonset.TemplateHash(&d.Spec.Template)
	if err != nil {
		return nil, fmt.Errorf("hashing template, %w", err)
	}
	t := &corev1.PodTemplate{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: d.Namespace, Name: d.Name,
			Labels:      map[string]string{},
			Annotations: map[string]string{},
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(d, edsv1.GroupVersion.WithKind("ExtendedDaemonSet")),
			},
		},
		Template: *d.Spec.Template.DeepCopy(),
	}
	t.Template.Name = ""
	maps.Copy(t.Labels, d.Labels)
	t.Labels[edsv1.AnnotationDaemonsetPod] = edsv1.True
	maps.Copy(t.Annotations, d.Annotations)
	delete(t.Annotations, corev1.LastAppliedConfigAnnotation)
	t.Annotations[edsv1.AnnotationTemplateHash] = hash
	return t, nil
}

// same reports whether a PodTemplate is what it should be. The API server fills in what a template leaves open.
func same(have, want *corev1.PodTemplate) bool {
	return maps.Equal(have.Labels, want.Labels) && maps.Equal(have.Annotations, want.Annotations) &&
		controlledBy(have, want.OwnerReferences[0].UID) && within(plain(&want.Template), plain(&have.Template))
}

// plain is a template as it is written, without what is left open. Of one that can't be written the hash has to tell.
func plain(t *corev1.PodTemplateSpec) map[string]any {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(t)
	if err != nil {
		return nil
	}
	return fields
}

// within reports whether everything in want is in have, where more may be.
func within(want, have any) bool {
	switch want := want.(type) {
	case nil:
		return true
	case map[string]any:
		all, ok := have.(map[string]any)
		if !ok && len(want) > 0 {
			return false
		}
		for key, value := range want {
			if !within(value, all[key]) {
				return false
			}
		}
		return true
	case []any:
		all, ok := have.([]any)
		return (ok || len(want) == 0) && slices.EqualFunc(want, all, within)
	default:
		return want == have
	}
}

// merged is what there is with everything in it that is to be different.
func merged(have, want *corev1.PodTemplate) *corev1.PodTemplate {
	t := have.DeepCopy()
	t.Labels, t.Annotations, t.Template = want.Labels, want.Annotations, want.Template
	if uid := want.OwnerReferences[0].UID; !controlledBy(t, uid) {
		t.OwnerReferences = slices.DeleteFunc(t.OwnerReferences, func(r metav1.OwnerReference) bool { return r.UID == uid })
		t.OwnerReferences = append(t.OwnerReferences, want.OwnerReferences...)
	}
	return t
}
