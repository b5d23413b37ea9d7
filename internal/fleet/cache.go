// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/drain"
)

// CacheOptions limits the manager's cache to the fields that the fleet needs, but for budgets. It includes kinds that only gates watch;
// their watches open when a gate needs them.
func CacheOptions() map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{
		&corev1.Node{}:                  {Transform: TrimNode},
		&corev1.Namespace{}:             {Transform: TrimWorkload},
		&appsv1.Deployment{}:            {Transform: TrimWorkload},
		&appsv1.StatefulSet{}:           {Transform: TrimWorkload},
		&appsv1.DaemonSet{}:             {Transform: TrimWorkload},
		&appsv1.ReplicaSet{}:            {Transform: TrimWorkload},
		&corev1.ReplicationController{}: {Transform: TrimWorkload},
	}
}

// TrimWorkload drops the templates and conditions of a workload, which are most of it, and all but the labels of a Namespace.
func TrimWorkload(object any) (any, error) {
	if o, ok := object.(metav1.Object); ok {
		drain.TrimMeta(o)
	}
	switch o := object.(type) {
	case *corev1.Namespace:
		o.Spec, o.Status = corev1.NamespaceSpec{}, corev1.NamespaceStatus{}
	case *appsv1.Deployment:
		o.Spec.Template, o.Status.Conditions = corev1.PodTemplateSpec{}, nil
	case *appsv1.StatefulSet:
		o.Spec.Template, o.Spec.VolumeClaimTemplates, o.Status.Conditions = corev1.PodTemplateSpec{}, nil, nil
	case *appsv1.DaemonSet:
		o.Spec.Template, o.Status.Conditions = corev1.PodTemplateSpec{}, nil
	case *appsv1.ReplicaSet:
		o.Spec.Template, o.Status.Conditions = corev1.PodTemplateSpec{}, nil
	case *corev1.ReplicationController:
		o.Spec.Template, o.Status.Conditions = nil, nil
	case *edsv1.ExtendedDaemonSet:
		o.Spec = edsv1.ExtendedDaemonSetSpec{}
		o.Status = edsv1.ExtendedDaemonSetStatus{ObservedGeneration: o.Status.ObservedGeneration, Desired: o.Status.Desired, Available: o.Status.Available}
	case *batchv1.Job:
		o.Spec.Template = corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: o.Spec.Template.Labels}}
	}
	return object, nil
}

// TrimNode keeps the fields of a Node that decisions need, and nothing that a heartbeat changes. Taints stay complete: node.Write writes them back.
func TrimNode(object any) (any, error) {
	n, ok := object.(*corev1.Node)
	if !ok {
		return object, nil
	}
	n.ManagedFields = nil
	maps.DeleteFunc(n.Annotations, func(key, value string) bool { // A reboot hook has the value "true".
		return value != "true" && !slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(key, prefix) })
	})
	n.Spec = corev1.NodeSpec{ProviderID: n.Spec.ProviderID, Unschedulable: n.Spec.Unschedulable, Taints: n.Spec.Taints}
	for i := range n.Status.Conditions {
		c := &n.Status.Conditions[i]
		c.LastHeartbeatTime = metav1.Time{}
		switch c.Type {
		case corev1.NodeMaintenancePlanned, corev1.NodeMaintenanceInProgress, corev1.NodeDrainInProgress, corev1.NodeDrained:
		default:
			c.Reason, c.Message = "", ""
		}
	}
	n.Status = corev1.NodeStatus{
		Conditions: n.Status.Conditions,
		NodeInfo:   corev1.NodeSystemInfo{BootID: n.Status.NodeInfo.BootID, OSImage: n.Status.NodeInfo.OSImage},
	}
	return n, nil
}

// prefixes of the annotations that are kept: those of Moult, of the host protocols, of daemon pods' resources, of the
// cluster autoscaler, and of Ducklett.
var prefixes = func() []string {
	all := []string{edsv1.AnnotationResourcesPrefix, v1alpha1.GroupName + "/", v1alpha1.AnnotationScaleDownDisabled, v1alpha1.DucklettPrefix}
	for _, p := range v1alpha1.HostProtocols {
		prefix, _, _ := strings.Cut(p.Wanted, "/")
		all = append(all, prefix+"/")
	}
	return all
}()

// PodsNotEnded selects the pods that have not ended.
var PodsNotEnded = fields.AndSelectors(
	fields.OneTermNotEqualSelector("status.phase", string(corev1.PodSucceeded)),
	fields.OneTermNotEqualSelector("status.phase", string(corev1.PodFailed)),
)

// NewPodCache returns a cache of all pods that have not ended, with only the fields that gates and drains need. Gates also watch Jobs,
// PodDisruptionBudgets and the kinds that they name with it. The caller adds it to the manager. It watches nothing before its first use. Pass
// the manager's scheme and mapper in the options.
func NewPodCache(cfg *rest.Config, o cache.Options) (cache.Cache, error) {
	o.ByObject = map[client.Object]cache.ByObject{&corev1.Pod{}: {Field: PodsNotEnded, Transform: TrimPod}}
	o.DefaultTransform = TrimWorkload
	return cache.New(cfg, o)
}

// TrimPod keeps the fields of a Pod that gates and drains need.
func TrimPod(object any) (any, error) {
	p, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	drain.TrimMeta(p)
	p.Spec = corev1.PodSpec{NodeName: p.Spec.NodeName}
	p.Status = corev1.PodStatus{Phase: p.Status.Phase}
	return p, nil
}
