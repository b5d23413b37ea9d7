// SPDX-License-Identifier: Apache-2.0

package podtemplate

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
)

// CacheOptions limits the cache to PodTemplates for the cluster autoscaler, in these namespaces; nil is all.
func CacheOptions(namespaces map[string]cache.Config) map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{&corev1.PodTemplate{}: {
		Label:      labels.SelectorFromSet(labels.Set{edsv1.AnnotationDaemonsetPod: edsv1.True}),
		Namespaces: namespaces, Transform: cache.TransformStripManagedFields(),
	}}
}

// SetupWithManager makes the manager run this controller. A PodTemplate wakes the ExtendedDaemonSet of its name, whoever owns it.
func (c *Controller) SetupWithManager(_ context.Context, m ctrl.Manager) error {
	copied := predicate.Or(predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{})
	return ctrl.NewControllerManagedBy(m).
		Named("podtemplate.autoscaler").
		For(&edsv1.ExtendedDaemonSet{}, builder.WithPredicates(copied)).
		Watches(&corev1.PodTemplate{}, &handler.EnqueueRequestForObject{}).
		Complete(c)
}
