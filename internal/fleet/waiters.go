// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/handler"
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
	// busy are the rollouts with a turn in progress.
	busy sync.Map

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

// SetBusy records whether a rollout has a turn in progress. Nodes bound how many have one.
func (w *Waiters) SetBusy(rollout types.NamespacedName, busy bool) {
	if busy {
		w.busy.Store(rollout, nil)
	} else {
		w.busy.Delete(rollout)
	}
}

// Add enqueues a rollout for a change outside of it. Those without a turn in progress come last: thousands of them may wait on the same nodes.
func (w *Waiters) Add(queue workqueue.TypedRateLimitingInterface[reconcile.Request], rollout reconcile.Request, after time.Duration) {
	if q, ok := queue.(priorityqueue.PriorityQueue[reconcile.Request]); ok {
		q.AddWithOpts(priorityqueue.AddOpts{After: after, Priority: w.priority(rollout.NamespacedName)}, rollout)
	} else {
		queue.AddAfter(rollout, after)
	}
}

func (w *Waiters) priority(rollout types.NamespacedName) *int {
	if _, busy := w.busy.Load(rollout); busy {
		return ptr.To(0)
	}
	return ptr.To(handler.LowPriority)
}

// Prioritize sets the priority of a result by the same rule. A rollout without a turn that looks again at once keeps its priority.
func (w *Waiters) Prioritize(rollout types.NamespacedName, result reconcile.Result, failed bool) reconcile.Result {
	if p := w.priority(rollout); *p == 0 || failed || result.RequeueAfter > StatusInterval {
		result.Priority = p
	}
	return result
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
				w.Add(queue, reconcile.Request{NamespacedName: key}, Coalesce)
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
