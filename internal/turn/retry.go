// SPDX-License-Identifier: Apache-2.0

package turn

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"moult.dev/moult/internal/fleet"
	"moult.dev/moult/internal/metrics"
)

// FirstRetry and LastRetry bound how long a rollout waits after an error: the wait doubles with each.
const (
	FirstRetry = 100 * time.Millisecond
	LastRetry  = 30 * time.Second
)

// Retries says when a rollout is looked at again.
type Retries struct {
	clock   clock.PassiveClock
	kind    string
	limiter workqueue.TypedRateLimiter[types.NamespacedName]
}

// NewRetries is that of rollouts of one kind.
func NewRetries(clk clock.PassiveClock, kind string) *Retries {
	return &Retries{clock: clk, kind: kind, limiter: workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](FirstRetry, LastRetry)}
}

// Result of a reconcile: it comes back at wake when the clock alone calls for it, and after an error no later than that.
func (r *Retries) Result(ctx context.Context, key types.NamespacedName, wake time.Time, err error) ctrl.Result {
	var after time.Duration
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return ctrl.Result{} // The process ends, and so do its requests.
	case apierrors.IsConflict(err):
		// Somebody was faster: decide again on what is true now.
		log.FromContext(ctx).V(1).Info("deciding again", "conflict", err.Error())
		after = fleet.Coalesce
	case err != nil:
		metrics.CountError(metrics.Rollout{Kind: r.kind, NamespacedName: key})
		after = r.limiter.When(key)
		log.FromContext(ctx).Error(err, "a step failed, and is tried again", "after", after.String())
	default:
		r.limiter.Forget(key)
	}
	if !wake.IsZero() {
		until := max(wake.Sub(r.clock.Now()), time.Millisecond)
		if after == 0 || until < after {
			after = until
		}
	}
	return ctrl.Result{RequeueAfter: after}
}
