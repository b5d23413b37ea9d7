// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
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

// perIdle is how long the rollouts without a turn in progress wait after a change, for each rollout that the change wakes beyond fewIdle. So thousands
// that wait on the same nodes leave time to others, and two dozen look at once.
const perIdle, fewIdle = 10 * time.Millisecond, 24

// Waiters are the rollouts of one controller that wait for a budget. They also enqueue rollouts for causes that no watch of the controller shows.
type Waiters struct {
	all sync.Map
	// busy are the rollouts with a turn in progress, and failed those whose last pass failed.
	busy, failed sync.Map

	mu    sync.Mutex
	queue workqueue.TypedRateLimitingInterface[reconcile.Request]
	// waking is true from a change until the waiting rollouts are enqueued for it. budgets are the changes of budgets until then.
	waking  atomic.Bool
	budgets atomic.Uint64
}

// Set records whether a change of a budget or a node wakes a rollout.
func (w *Waiters) Set(rollout types.NamespacedName, waits bool) { note(&w.all, rollout, waits) }

// SetBusy records whether a rollout has a turn in progress. Nodes bound how many have one.
func (w *Waiters) SetBusy(rollout types.NamespacedName, busy bool) { note(&w.busy, rollout, busy) }

func note(in *sync.Map, rollout types.NamespacedName, is bool) {
	if is {
		in.Store(rollout, nil)
	} else {
		in.Delete(rollout)
	}
}

// concerned is the priority of rollouts without a turn in progress that a change concerns: after those with one, and before those that only wait.
const concerned = handler.LowPriority / 2

// Add enqueues the rollouts that a change outside of them concerns. If these are more than fewIdle, it is AddLast. A rollout whose last pass
// failed, and which has no turn in progress, keeps its time.
func (w *Waiters) Add(queue workqueue.TypedRateLimitingInterface[reconcile.Request], after time.Duration, rollouts ...reconcile.Request) {
	w.add(queue, after, len(rollouts) > fewIdle, rollouts)
}

// AddLast is Add, but those without a turn in progress come last, and later the more they are.
func (w *Waiters) AddLast(queue workqueue.TypedRateLimitingInterface[reconcile.Request], after time.Duration, rollouts ...reconcile.Request) {
	w.add(queue, after, true, rollouts)
}

func (w *Waiters) add(queue workqueue.TypedRateLimitingInterface[reconcile.Request], after time.Duration, last bool, rollouts []reconcile.Request) {
	q, _ := queue.(priorityqueue.PriorityQueue[reconcile.Request])
	idle := max(after, time.Duration(len(rollouts)-fewIdle)*perIdle)
	for _, r := range rollouts {
		o := priorityqueue.AddOpts{After: after, Priority: w.priority(r.NamespacedName)}
		if *o.Priority != 0 {
			if _, failed := w.failed.Load(r.NamespacedName); failed {
				continue
			}
			if o.After = idle; !last {
				o.Priority = ptr.To(concerned)
			}
		}
		q.AddWithOpts(o, r)
	}
}

func (w *Waiters) priority(rollout types.NamespacedName) *int {
	if _, busy := w.busy.Load(rollout); busy {
		return ptr.To(0)
	}
	return ptr.To(handler.LowPriority)
}

// Prioritize sets the priority of a result: last without a turn in progress. A rollout without a turn that looks again at once keeps its priority.
func (w *Waiters) Prioritize(rollout types.NamespacedName, result reconcile.Result, failed bool) reconcile.Result {
	note(&w.failed, rollout, failed)
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
	v1alpha1.ReasonAlertsUnreachable, v1alpha1.ReasonWaveUnhealthy, v1alpha1.ReasonClaimed, v1alpha1.ReasonHostnameShared,
}

// Source gives the controller's queue to the Waiters. A change that may affect a budget wakes each waiting rollout after Coalesce. Further changes
// until then wake none.
func (w *Waiters) Source(f *Fleet) source.Source {
	return source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.queue = queue
		f.OnChange(func() {
			if w.waking.CompareAndSwap(false, true) {
				clock.RealClock{}.AfterFunc(Coalesce, func() { w.wakeAll(queue, f.budgetChanges.Load()) })
			}
		})
		return nil
	})
}

// wakeAll enqueues the waiting rollouts, and after a change of a budget also those with a turn, whose nodes may be healthy by it now. A change that
// comes while it runs wakes them again.
func (w *Waiters) wakeAll(queue workqueue.TypedRateLimitingInterface[reconcile.Request], budgets uint64) {
	w.waking.Store(false)
	woken := []*sync.Map{&w.all}
	if w.budgets.Swap(budgets) != budgets {
		woken = append(woken, &w.busy)
	}
	var waiting []reconcile.Request
	for _, set := range woken {
		for rollout := range set.Range {
			key, _ := rollout.(types.NamespacedName)
			waiting = append(waiting, reconcile.Request{NamespacedName: key})
		}
	}
	w.AddLast(queue, 0, waiting...)
}

// Wake enqueues a rollout after Coalesce.
func (w *Waiters) Wake(rollout types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.queue != nil {
		w.queue.AddAfter(reconcile.Request{NamespacedName: rollout}, Coalesce)
	}
}
