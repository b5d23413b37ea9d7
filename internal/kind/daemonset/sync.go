// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
)

// UpToDate reports whether a pod is what NewPod would make today: of the template with this hash, and with these overrides. What
// has since been changed on the pod itself, or was filled in by the API server, does not count.
//
// A pod that ExtendedDaemonSet created has no hash of the overrides. It is compared by what that left on it, and by the resources
// of its containers: taking such pods over replaces none.
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
		return false // A field that only the other had set looks like one of the template.
	}
	for name, r := range want.Resources {
		i := slices.IndexFunc(p.Spec.Containers, func(c corev1.Container) bool { return c.Name == name })
		if i < 0 || !sameResources(p, p.Spec.Containers[i].Resources, r) {
			return false
		}
	}
	return true
}

// sameResources compares those of a running container with what it should have been created with. The API server makes a request of
// each limit that has none, and a LimitRange may have filled in any that is missing.
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
