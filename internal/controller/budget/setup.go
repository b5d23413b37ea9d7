// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"context"
	"errors"
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
	"sigs.k8s.io/controller-runtime/pkg/source"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/fleet"
)

// coalesce is how long a budget waits after something changed, so that what changes together is looked at once.
const coalesce = 250 * time.Millisecond

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// SetupWithManager makes the manager run this controller. The fleet is to be set up besides.
func (c *Controller) SetupWithManager(_ context.Context, m ctrl.Manager) error {
	status := ctrl.NewControllerManagedBy(m).
		Named("budget.status").
		For(&v1alpha1.NodeDisruptionBudget{}, builder.WithPredicates(specChanged)).
		WatchesRawSource(c.budgets.wokenBy(c.fleet)).
		Complete(c)
	records := ctrl.NewControllerManagedBy(m).
		Named("budget.records").
		Watches(&corev1.Node{}, soon, builder.WithPredicates(predicate.NewPredicateFuncs(recorded))).
		WatchesRawSource(c.nodes.wokenBy(c.fleet)).
		Complete(reconcile.Func(c.reconcileRecord))
	return errors.Join(status, records)
}

// specChanged leaves out this controller's own status writes.
var specChanged = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	return e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration() || e.ObjectOld.GetUID() != e.ObjectNew.GetUID() ||
		(e.ObjectOld.GetDeletionTimestamp() == nil) != (e.ObjectNew.GetDeletionTimestamp() == nil)
}}

func recorded(o client.Object) bool { return len(fleet.Evicted(o)) > 0 }

// soon enqueues an object after a moment in which more may happen to it.
var soon = handler.Funcs{
	CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { q.AddAfter(named(e.Object.GetName()), coalesce) },
	UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
		q.AddAfter(named(e.ObjectNew.GetName()), coalesce)
	},
}

func named(name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}
}

// known are the objects to be looked at again when the fleet or a gate changes.
type known struct {
	mu    sync.Mutex
	names map[string]bool
}

func newKnown() *known { return &known{names: map[string]bool{}} }

func (k *known) add(name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.names[name] = true
}

func (k *known) drop(name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.names, name)
}

// wokenBy enqueues them all, a moment after the fleet or a gate has changed.
func (k *known) wokenBy(f *fleet.Fleet) source.Source {
	return source.Func(func(_ context.Context, q queue) error {
		wake := func() {
			k.mu.Lock()
			defer k.mu.Unlock()
			for name := range k.names {
				q.AddAfter(named(name), coalesce)
			}
		}
		f.OnChange(wake)
		f.OnGates(wake)
		return nil
	})
}
