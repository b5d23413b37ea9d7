// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/rollout"
)

// Coalesce is how long a rollout waits after a change, so that one decision covers several changes.
const Coalesce = 50 * time.Millisecond

// Waiters are the rollouts of one controller that wait for a budget. They also enqueue rollouts for causes that no watch of the controller shows.
type Waiters struct {
	all sync.Map

	mu    sync.Mutex
	queue workqueue.TypedRateLimitingInterface[reconcile.Request]
}

// Set records whether a change of a budget or a node wakes a rollout.
func (w *Waiters) Set(rollout types.NamespacedName, waits bool) {
	if waits {
		w.all.Store(rollout, nil)
	} else {
		w.all.Delete(rollout)
	}
}

// ForBudget reports whether a unit waits for a budget, for the health of nodes, or for another rollout on the node. Changes outside
// the rollout can then end the wait.
func ForBudget(w rollout.Wait) bool { return slices.Contains(reasonsOfBudgets, w.Reason) }

var reasonsOfBudgets = []v1alpha1.Reason{
	v1alpha1.ReasonBudgetInvalid, v1alpha1.ReasonBudgetPaused, v1alpha1.ReasonOutsideBudgetWindow, v1alpha1.ReasonBudgetExhausted,
	v1alpha1.ReasonMaxDomains, v1alpha1.ReasonWorkloadsUnavailable, v1alpha1.ReasonPodsBlock, v1alpha1.ReasonAlertsActive,
	v1alpha1.ReasonAlertsUnreachable, v1alpha1.ReasonWaveUnhealthy, v1alpha1.ReasonClaimed,
}

// Source gives the controller's queue to the Waiters. After every change that may affect a budget, it wakes each waiting rollout.
func (w *Waiters) Source(f *Fleet) source.Source {
	return source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.queue = queue
		f.OnChange(func() {
			for rollout := range w.all.Range {
				key, _ := rollout.(types.NamespacedName)
				w.Wake(key)
			}
		})
		return nil
	})
}

// Wake enqueues a rollout after Coalesce.
func (w *Waiters) Wake(rollout types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.queue != nil {
		w.queue.AddAfter(reconcile.Request{NamespacedName: rollout}, Coalesce)
	}
}
