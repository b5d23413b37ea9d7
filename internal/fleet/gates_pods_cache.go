// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// NewPodCache returns a cache of all pods that have not ended, with only the fields that gates and drains need. The caller
// adds it to the manager. It watches nothing before its first use. Pass the manager's scheme and mapper in the options.
func NewPodCache(cfg *rest.Config, o cache.Options) (cache.Cache, error) {
	o.ByObject = map[client.Object]cache.ByObject{
		&corev1.Pod{}: {
			Field: fields.AndSelectors(
				fields.OneTermNotEqualSelector("status.phase", string(corev1.PodSucceeded)),
				fields.OneTermNotEqualSelector("status.phase", string(corev1.PodFailed)),
			),
			Transform: TrimPod,
		},
	}
	c, err := cache.New(cfg, o)
	if err != nil {
		return nil, fmt.Errorf("making the cache of pods, %w", err)
	}
	return c, nil
}

// TrimPod keeps the fields of a Pod that gates and drains need.
func TrimPod(object any) (any, error) {
	p, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	trimMeta(&p.ObjectMeta, corev1.MirrorPodAnnotationKey)
	spec := corev1.PodSpec{NodeName: p.Spec.NodeName, Priority: p.Spec.Priority}
	for i := range p.Spec.Volumes {
		if p.Spec.Volumes[i].EmptyDir != nil {
			// One volume suffices: the drain only checks whether there is any.
			spec.Volumes = []corev1.Volume{{
				Name: p.Spec.Volumes[i].Name, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}},
			}}
			break
		}
	}
	p.Spec = spec
	p.Status = corev1.PodStatus{Phase: p.Status.Phase}
	return p, nil
}

// trimMeta keeps the identity, the labels, the controller and these annotations of an object.
func trimMeta(m *metav1.ObjectMeta, annotations ...string) {
	kept := metav1.ObjectMeta{
		Name: m.Name, Namespace: m.Namespace, UID: m.UID, ResourceVersion: m.ResourceVersion, Generation: m.Generation,
		CreationTimestamp: m.CreationTimestamp, DeletionTimestamp: m.DeletionTimestamp, Labels: m.Labels,
	}
	if owner := metav1.GetControllerOf(m); owner != nil {
		kept.OwnerReferences = []metav1.OwnerReference{*owner}
	}
	for _, key := range annotations {
		if value, ok := m.Annotations[key]; ok {
			metav1.SetMetaDataAnnotation(&kept, key, value)
		}
	}
	*m = kept
}
