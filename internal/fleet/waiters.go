// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/rollout"
)

// Coalesce is how long a rollout waits after a change, so that one decision covers several changes.
const Coalesce = 50 * time.Millisecond

// Waiters are the rollouts of one controller that wait for a budget.
type Waiters struct{ all sync.Map }

// NewWaiters returns an empty set.
func NewWaiters() *Waiters { return &Waiters{} }

// Set records whether a rollout waits.
func (w *Waiters) Set(rollout types.NamespacedName, waits bool) {
	if waits {
		w.all.Store(rollout, nil)
	} else {
		w.all.Delete(rollout)
	}
}

// Done records that a rollout does not wait.
func (w *Waiters) Done(rollout types.NamespacedName) { w.Set(rollout, false) }

// ForBudget reports whether a unit waits for a budget or for the health of nodes. Changes outside the rollout can then end
// the wait.
func ForBudget(w rollout.Wait) bool { return slices.Contains(reasonsOfBudgets, w.Reason) }

var reasonsOfBudgets = []v1alpha1.Reason{
	v1alpha1.ReasonBudgetInvalid, v1alpha1.ReasonBudgetPaused, v1alpha1.ReasonOutsideBudgetWindow, v1alpha1.ReasonBudgetExhausted,
	v1alpha1.ReasonMaxDomains, v1alpha1.ReasonWorkloadsUnavailable, v1alpha1.ReasonPodsBlock, v1alpha1.ReasonAlertsActive,
	v1alpha1.ReasonAlertsUnreachable, v1alpha1.ReasonWaveUnhealthy,
}

// Wake sends an event for each waiting rollout after every change that may affect a budget, until ctx ends.
func (f *Fleet) Wake(ctx context.Context, w *Waiters) <-chan event.GenericEvent {
	changed, woken := make(chan struct{}, 1), make(chan event.GenericEvent)
	f.OnChange(func() {
		select {
		case changed <- struct{}{}:
		default: // A wake-up is already pending.
		}
	})
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-changed:
			}
			for key := range w.all.Range {
				key, _ := key.(types.NamespacedName)
				o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
				select {
				case <-ctx.Done():
					return
				case woken <- event.GenericEvent{Object: o}:
				}
			}
		}
	}()
	return woken
}
