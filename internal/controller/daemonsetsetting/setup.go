// SPDX-License-Identifier: Apache-2.0

package daemonsetsetting

import (
	"context"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/internal/kind/daemonset"
)

// What changes together is looked at once, a moment later. Nodes may come by the thousand, and a look is at all of them.
const (
	coalesce      = 250 * time.Millisecond
	coalesceNodes = time.Second
)

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// SetupWithManager makes the manager run this controller.
func (c *Controller) SetupWithManager(_ context.Context, m ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(m).
		Named("daemonsetsetting.status").
		Watches(&edsv1.ExtendedDaemonsetSetting{}, ofDaemonSet, builder.WithPredicates(specChanged)).
		Watches(&corev1.Node{}, c.wokenByNodes(), builder.WithPredicates(labelsChanged)).
		Complete(c)
}

// specChanged leaves out this controller's own status writes.
var specChanged = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	return e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration() || e.ObjectOld.GetUID() != e.ObjectNew.GetUID() ||
		(e.ObjectOld.GetDeletionTimestamp() == nil) != (e.ObjectNew.GetDeletionTimestamp() == nil)
}}

// labelsChanged leaves out what selectors don't look at.
var labelsChanged = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	return !maps.Equal(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels())
}}

// ofDaemonSet enqueues the ExtendedDaemonSet that a Setting names, and the one that it named before.
var ofDaemonSet = handler.Funcs{
	CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { enqueue(q, e.Object) },
	UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) { enqueue(q, e.ObjectOld, e.ObjectNew) },
	DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) { enqueue(q, e.Object) },
}

func enqueue(q queue, objects ...client.Object) {
	for _, o := range objects {
		if s, ok := o.(*edsv1.ExtendedDaemonsetSetting); ok {
			q.AddAfter(reconcile.Request{NamespacedName: types.NamespacedName{Namespace: s.Namespace, Name: daemonset.ReferenceOf(s)}}, coalesce)
		}
	}
}

// ofNodes enqueues the ExtendedDaemonSets with several Settings. Which of these apply depends on the nodes.
func (c *Controller) ofNodes(ctx context.Context, q queue) {
	var list edsv1.ExtendedDaemonsetSettingList
	if err := c.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "settings can't be listed")
		return
	}
	settings := map[types.NamespacedName]int{}
	for i := range list.Items {
		s := &list.Items[i]
		settings[types.NamespacedName{Namespace: s.Namespace, Name: daemonset.ReferenceOf(s)}]++
	}
	for key, n := range settings {
		if n > 1 {
			q.AddAfter(reconcile.Request{NamespacedName: key}, coalesceNodes)
		}
	}
}

// wokenByNodes enqueues them when a node comes, goes or changes.
func (c *Controller) wokenByNodes() handler.Funcs {
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, _ event.CreateEvent, q queue) { c.ofNodes(ctx, q) },
		UpdateFunc: func(ctx context.Context, _ event.UpdateEvent, q queue) { c.ofNodes(ctx, q) },
		DeleteFunc: func(ctx context.Context, _ event.DeleteEvent, q queue) { c.ofNodes(ctx, q) },
	}
}
