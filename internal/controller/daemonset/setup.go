// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"context"
	"fmt"
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/internal/fleet"
	"moult.dev/moult/internal/kind/daemonset"
)

// indexName finds pods by the ExtendedDaemonSet that their label names.
const indexName = "extendeddaemonset"

func indexedByName(o client.Object) []string {
	if name := o.GetLabels()[edsv1.LabelName]; name != "" {
		return []string{name}
	}
	return nil
}

// CacheOptions bounds the client's cache to the namespaces that are watched.
func CacheOptions(o Options) map[client.Object]cache.ByObject {
	by := cache.ByObject{Namespaces: namespaces(o), Transform: cache.TransformStripManagedFields()}
	return map[client.Object]cache.ByObject{
		&edsv1.ExtendedDaemonSet{}: by, &edsv1.ExtendedDaemonSetReplicaSet{}: by, &edsv1.ExtendedDaemonsetSetting{}: by,
	}
}

func namespaces(o Options) map[string]cache.Config {
	if len(o.Namespaces) == 0 {
		return nil
	}
	all := map[string]cache.Config{}
	for _, name := range o.Namespaces {
		all[name] = cache.Config{}
	}
	return all
}

// NewCaches returns the caches of pods, of which little is kept. They are to be added to the manager. Of the cache's options
// those that the manager has made already, such as the scheme and the mapper, are worth giving.
func NewCaches(cfg *rest.Config, o Options, with cache.Options) (Caches, error) {
	daemons, err := labels.NewRequirement(edsv1.LabelName, selection.Exists, nil)
	if err != nil {
		return Caches{}, err
	}
	made := func(selector labels.Selector) (cache.Cache, error) {
		with.DefaultTransform = cache.TransformStripManagedFields()
		with.ByObject = map[client.Object]cache.ByObject{
			&corev1.Pod{}:       {Label: selector, Namespaces: namespaces(o), Transform: daemonset.TrimPod},
			&appsv1.DaemonSet{}: {Namespaces: namespaces(o)},
		}
		c, err := cache.New(cfg, with)
		if err != nil {
			return nil, fmt.Errorf("making the cache of pods, %w", err)
		}
		return c, nil
	}
	pods, err := made(labels.NewSelector().Add(*daemons))
	if err != nil {
		return Caches{}, err
	}
	old, err := made(nil)
	return Caches{Pods: pods, Legacy: old}, err
}

// SetupWithManager makes the manager run this controller.
func (c *Controller) SetupWithManager(ctx context.Context, m ctrl.Manager) error {
	if err := c.pods.IndexField(ctx, &corev1.Pod{}, indexName, indexedByName); err != nil {
		return fmt.Errorf("indexing pods, %w", err)
	}
	return ctrl.NewControllerManagedBy(m).
		Named("extendeddaemonset.rollout").
		For(&edsv1.ExtendedDaemonSet{}, builder.WithPredicates(asked)).
		Watches(&edsv1.ExtendedDaemonSetReplicaSet{}, c.soon(ofLabel)).
		Watches(&edsv1.ExtendedDaemonsetSetting{}, c.soon(ofReference)).
		Watches(&corev1.Node{}, c.soon(c.all), builder.WithPredicates(nodeChanged)).
		WatchesRawSource(source.Kind[client.Object](c.pods, &corev1.Pod{}, c.soon(ofLabel))).
		WatchesRawSource(source.Channel(c.legacy.woken, c.soon(itself))).
		WatchesRawSource(source.Channel(c.fleet.Wake(ctx, c.queued), c.soon(itself))).
		WithOptions(controller.Options{MaxConcurrentReconciles: max(1, c.options.Threads)}).
		Complete(c)
}

// asked is whatever people change of an ExtendedDaemonSet. Its status is the controller's own.
var asked = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	a, b := e.ObjectOld, e.ObjectNew
	return a.GetGeneration() != b.GetGeneration() || a.GetUID() != b.GetUID() || !maps.Equal(a.GetAnnotations(), b.GetAnnotations()) ||
		!maps.Equal(a.GetLabels(), b.GetLabels()) || (a.GetDeletionTimestamp() == nil) != (b.GetDeletionTimestamp() == nil)
}}

var nodeChanged = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	a, okA := e.ObjectOld.(*corev1.Node)
	b, okB := e.ObjectNew.(*corev1.Node)
	return !okA || !okB || fleet.NodeChanged(a, b)
}}

func itself(_ context.Context, o client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(o)}}
}

func ofLabel(_ context.Context, o client.Object) []reconcile.Request {
	if name := o.GetLabels()[edsv1.LabelName]; name != "" {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: name}}}
	}
	return nil
}

func ofReference(_ context.Context, o client.Object) []reconcile.Request {
	if s, ok := o.(*edsv1.ExtendedDaemonsetSetting); ok && s.Spec.Reference != nil {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: s.Namespace, Name: s.Spec.Reference.Name}}}
	}
	return nil
}

// all are the ExtendedDaemonSets that there are: what changes of a node may matter to each.
func (c *Controller) all(ctx context.Context, _ client.Object) []reconcile.Request {
	var list edsv1.ExtendedDaemonSetList
	if err := c.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "ExtendedDaemonSets can't be listed")
		return nil
	}
	requests := make([]reconcile.Request, len(list.Items))
	for i := range list.Items {
		requests[i].NamespacedName = client.ObjectKeyFromObject(&list.Items[i])
	}
	return requests
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// soon enqueues the requests of an object, as it is and as it was, after a moment in which others may join them.
func (c *Controller) soon(requests func(context.Context, client.Object) []reconcile.Request) handler.Funcs {
	add := func(ctx context.Context, q queue, objects ...client.Object) {
		for _, o := range objects {
			for _, r := range requests(ctx, o) {
				q.AddAfter(r, fleet.Coalesce)
			}
		}
	}
	return handler.Funcs{
		CreateFunc:  func(ctx context.Context, e event.CreateEvent, q queue) { add(ctx, q, e.Object) },
		UpdateFunc:  func(ctx context.Context, e event.UpdateEvent, q queue) { add(ctx, q, e.ObjectOld, e.ObjectNew) },
		DeleteFunc:  func(ctx context.Context, e event.DeleteEvent, q queue) { add(ctx, q, e.Object) },
		GenericFunc: func(ctx context.Context, e event.GenericEvent, q queue) { add(ctx, q, e.Object) },
	}
}
