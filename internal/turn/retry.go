// SPDX-License-Identifier: Apache-2.0

package turn

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"moult.dev/moult/internal/fleet"
	"moult.dev/moult/internal/metrics"
)

// FirstRetry and LastRetry limit the wait after an error. The wait doubles with each further error.
const (
	FirstRetry = 100 * time.Millisecond
	LastRetry  = 30 * time.Second
)

// Retries decides when a rollout is reconciled again.
type Retries struct {
	clock   clock.PassiveClock
	kind    string
	limiter workqueue.TypedRateLimiter[types.NamespacedName]
}

// NewRetries returns the Retries of one kind of rollouts.
func NewRetries(clk clock.PassiveClock, kind string) *Retries {
	return &Retries{clock: clk, kind: kind, limiter: workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](FirstRetry, LastRetry)}
}

// Result returns when to reconcile again: at wake, or never if wake is zero. After an error it is the earlier of wake and the next retry.
func (r *Retries) Result(ctx context.Context, key types.NamespacedName, wake time.Time, err error) ctrl.Result {
	var after time.Duration
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return ctrl.Result{} // The process is stopping, which cancels its requests.
	case apierrors.IsConflict(err):
		// Another write came first: decide again with the new state.
		log.FromContext(ctx).V(1).Info("the object has changed, and is reconciled again", "conflict", err.Error())
		after = fleet.Coalesce
	case err != nil:
		metrics.CountError(metrics.Rollout{Kind: r.kind, NamespacedName: key})
		after = r.limiter.When(key)
		log.FromContext(ctx).Error(err, "a step failed, and is tried again", "after", after.String())
	default:
		r.limiter.Forget(key)
	}
	if until := wake.Sub(r.clock.Now()); !wake.IsZero() && (after == 0 || until > 0 && until < after) {
		after = max(until, time.Millisecond) // After an error, a wake in the past must not shorten the wait.
	}
	return ctrl.Result{RequeueAfter: after}
}

// writers bounds how many writes of one call of Each run at once.
const writers = 64

// Each calls do for all turns, several at a time. An error of one turn does not stop the others. It returns First of the errors.
func Each[T any](turns []T, do func(T) error) error {
	errs := make([]error, len(turns))
	var group errgroup.Group
	group.SetLimit(writers)
	for i, t := range turns {
		group.Go(func() error {
			errs[i] = do(t)
			return nil
		})
	}
	_ = group.Wait()
	return First(errs)
}

// First returns the first error that is not a conflict; otherwise a conflict. A conflict needs no report.
func First(errs []error) error {
	var conflict error
	for _, err := range errs {
		if err != nil && !apierrors.IsConflict(err) {
			return err
		}
		if err != nil {
			conflict = err
		}
	}
	return conflict
}
