// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
)

// UpToDate reports whether NewPod would create the same pod today, with this template hash and these overrides. Later changes of
// the pod, and values that the API server filled in, do not count.
//
// Pods that ExtendedDaemonSet created have no hash of the overrides. They are compared by their labels, annotations and container
// resources, so that taking them over replaces no pod.
func UpToDate(p *corev1.Pod, revision string, want Overrides) bool {
	if hash, ok := p.Annotations[edsv1.AnnotationTemplateHash]; !ok || hash != revision {
		return false
	}
	if hash, ok := p.Annotations[edsv1.AnnotationOverrides]; ok {
		return hash == want.Hash
	}
	setting, node := p.Labels[edsv1.LabelSettingName], p.Annotations[edsv1.AnnotationNodeHash]
	switch {
	case setting == "" && node == "" && want.Hash == "":
		return true // Annotations that override no container, or can't be read, change no pod.
	case node != want.NodeHash:
		return false
	case setting == "" && want.SettingName == "":
		return true
	case setting != "" && setting != want.SettingName:
		return false // A field that only the other Setting had set looks like a field of the template.
	}
	for name, r := range want.Resources {
		i := slices.IndexFunc(p.Spec.Containers, func(c corev1.Container) bool { return c.Name == name })
		if i < 0 || !sameResources(p, p.Spec.Containers[i].Resources, r) {
			return false
		}
	}
	return true
}

// sameResources compares the resources of a running container with the wanted ones. The API server copies a limit to a missing
// request, and a LimitRange may have filled in missing values.
func sameResources(p *corev1.Pod, got, want corev1.ResourceRequirements) bool {
	_, filled := p.Annotations[limitRanger]
	for name, q := range want.Limits {
		if !sameQuantity(got.Limits, name, q) {
			return false
		}
	}
	for name, q := range want.Requests {
		if !sameQuantity(got.Requests, name, q) {
			return false
		}
	}
	for name := range got.Limits {
		if _, ok := want.Limits[name]; !ok && !filled {
			return false
		}
	}
	for name, q := range got.Requests {
		if _, ok := want.Requests[name]; !ok && !filled && !sameQuantity(want.Limits, name, q) {
			return false
		}
	}
	return slices.Equal(got.Claims, want.Claims)
}

func sameQuantity(in corev1.ResourceList, name corev1.ResourceName, q resource.Quantity) bool {
	got, ok := in[name]
	return ok && got.Cmp(q) == 0
}
