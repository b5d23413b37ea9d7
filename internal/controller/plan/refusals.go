// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	"moult.dev/moult/internal/turn"
)

// refusals remembers of which Plans the API server refuses Jobs, so that these are tried again more and more seldom: the
// claim and the release around each attempt wake the Plan themselves.
type refusals struct {
	limiter workqueue.TypedRateLimiter[types.UID]

	mu   sync.Mutex
	last map[types.UID]refusal
}

type refusal struct {
	until time.Time
	why   error
	// generation of the Plan whose Job was refused: one that is changed is tried at once.
	generation int64
}

func newRefusals() *refusals {
	return &refusals{
		limiter: workqueue.NewTypedItemExponentialFailureRateLimiter[types.UID](turn.FirstRetry, turn.LastRetry),
		last:    map[types.UID]refusal{},
	}
}

// add notes a refusal.
func (r *refusals) add(plan types.UID, generation int64, why error, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if old, ok := r.last[plan]; ok && old.generation == generation && now.Before(old.until) {
		return // Another of the same attempt.
	}
	r.last[plan] = refusal{until: now.Add(r.limiter.When(plan)), why: why, generation: generation}
}

// get returns the refusal that keeps the Plan from another attempt now.
func (r *refusals) get(plan types.UID, generation int64, now time.Time) (refusal, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	last, ok := r.last[plan]
	return last, ok && last.generation == generation && now.Before(last.until)
}

// forget notes that a Job was made, or that the Plan is gone.
func (r *refusals) forget(plan types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.last[plan]; ok {
		r.limiter.Forget(plan)
		delete(r.last, plan)
	}
}
