// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
)

// UpToDate reports whether NewPod would create the same pod today, with this template hash and these overrides. Later changes of
// the pod, and values that the API server filled in, do not count.
//
// Pods that ExtendedDaemonSet created have no hash of the overrides. They are compared by their labels, annotations and container
// resources, so that taking them over replaces no pod.
func UpToDate(p *corev1.Pod, revision string, want Overrides) bool {
	if p.Annotations[edsv1.AnnotationTemplateHash] != revision {
		return false
	}
	if hash, ok := p.Annotations[edsv1.AnnotationOverrides]; ok {
		return hash == cmp.Or(want.Hash, noOverrides)
	}
	setting, node := p.Labels[edsv1.LabelSettingName], p.Annotations[edsv1.AnnotationNodeHash]
	switch {
	case setting == "" && node == "" && want.Hash == "":
		return true // Annotations that override no container, or can't be read, change no pod.
	case setting != want.SettingName, node != want.NodeHash:
		return false
	}
	for name, r := range want.Resources {
		i := slices.IndexFunc(p.Spec.Containers, func(c corev1.Container) bool { return c.Name == name })
		if i < 0 || !includes(p.Spec.Containers[i].Resources.Limits, r.Limits) || !includes(p.Spec.Containers[i].Resources.Requests, r.Requests) {
			return false
		}
	}
	return true
}

// includes reports whether a container has all wanted resources. It may have more: the API server copies a limit to a missing request,
// and a LimitRange fills in missing values.
func includes(got, want corev1.ResourceList) bool {
	for name, q := range want {
		if has, ok := got[name]; !ok || has.Cmp(q) != 0 {
			return false
		}
	}
	return true
}
