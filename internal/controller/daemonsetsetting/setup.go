// SPDX-License-Identifier: Apache-2.0

package daemonsetsetting

import (
	"context"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
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
		Watches(&corev1.Node{}, c.rivals.wokenByNodes(), builder.WithPredicates(labelsChanged)).
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

// rivals are the ExtendedDaemonSets with several Settings: which of these count depends on the nodes.
type rivals struct {
	mu   sync.Mutex
	keys map[types.NamespacedName]bool
}

func newRivals() *rivals { return &rivals{keys: map[types.NamespacedName]bool{}} }

// set notes whether there are several, and returns that. From then on nodes that change wake them.
func (r *rivals) set(key types.NamespacedName, several bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if several {
		r.keys[key] = true
	} else {
		delete(r.keys, key)
	}
	return several
}

// wokenByNodes enqueues them all when a node comes, goes or changes.
func (r *rivals) wokenByNodes() handler.Funcs {
	wake := func(q queue) {
		r.mu.Lock()
		defer r.mu.Unlock()
		for key := range r.keys {
			q.AddAfter(reconcile.Request{NamespacedName: key}, coalesceNodes)
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, _ event.CreateEvent, q queue) { wake(q) },
		UpdateFunc: func(_ context.Context, _ event.UpdateEvent, q queue) { wake(q) },
		DeleteFunc: func(_ context.Context, _ event.DeleteEvent, q queue) { wake(q) },
	}
}
