// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/api/v1alpha1"
)

// CacheOptions limits the manager's cache to the fields that the fleet needs. It includes kinds that only gates watch;
// their watches open when a gate needs them.
func CacheOptions() map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{
		&corev1.Node{}:                   {Transform: TrimNode},
		&v1alpha1.NodeDisruptionBudget{}: {Transform: cache.TransformStripManagedFields()},
		&corev1.Namespace{}:              {Transform: TrimWorkload},
		&appsv1.Deployment{}:             {Transform: TrimWorkload},
		&appsv1.StatefulSet{}:            {Transform: TrimWorkload},
		&appsv1.DaemonSet{}:              {Transform: TrimWorkload},
		&appsv1.ReplicaSet{}:             {Transform: TrimWorkload},
		&corev1.ReplicationController{}:  {Transform: TrimWorkload},
	}
}

// TrimWorkload keeps the desired and available pods of a workload, and the labels of a Namespace.
func TrimWorkload(object any) (any, error) {
	switch o := object.(type) {
	case *corev1.Namespace:
		trimMeta(&o.ObjectMeta)
		o.Spec, o.Status = corev1.NamespaceSpec{}, corev1.NamespaceStatus{}
	case *appsv1.Deployment:
		trimMeta(&o.ObjectMeta)
		o.Spec = appsv1.DeploymentSpec{Replicas: o.Spec.Replicas}
		o.Status = appsv1.DeploymentStatus{ObservedGeneration: o.Status.ObservedGeneration, AvailableReplicas: o.Status.AvailableReplicas}
	case *appsv1.StatefulSet:
		trimMeta(&o.ObjectMeta)
		o.Spec = appsv1.StatefulSetSpec{Replicas: o.Spec.Replicas}
		o.Status = appsv1.StatefulSetStatus{ObservedGeneration: o.Status.ObservedGeneration, AvailableReplicas: o.Status.AvailableReplicas}
	case *appsv1.DaemonSet:
		trimMeta(&o.ObjectMeta)
		o.Spec = appsv1.DaemonSetSpec{}
		o.Status = appsv1.DaemonSetStatus{
			ObservedGeneration:     o.Status.ObservedGeneration,
			DesiredNumberScheduled: o.Status.DesiredNumberScheduled, NumberAvailable: o.Status.NumberAvailable,
		}
	case *appsv1.ReplicaSet:
		trimMeta(&o.ObjectMeta)
		o.Spec = appsv1.ReplicaSetSpec{Replicas: o.Spec.Replicas}
		o.Status = appsv1.ReplicaSetStatus{ObservedGeneration: o.Status.ObservedGeneration, AvailableReplicas: o.Status.AvailableReplicas}
	case *corev1.ReplicationController:
		trimMeta(&o.ObjectMeta)
		o.Spec = corev1.ReplicationControllerSpec{Replicas: o.Spec.Replicas}
		o.Status = corev1.ReplicationControllerStatus{
			ObservedGeneration: o.Status.ObservedGeneration, AvailableReplicas: o.Status.AvailableReplicas,
		}
	}
	return object, nil
}
