// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"sync/atomic"
	"time"
)

// What changes on a rollout's nodes is looked at together, after at least Coalesce and at most slowest.
const (
	// Coalesce is how long a rollout waits at least.
	Coalesce = 50 * time.Millisecond
	slowest  = 2 * time.Second
	// share bounds what looking at rollouts may take of the time: a look that takes longer is taken more seldom. One that takes
	// longer than long takes a smaller share still: in a large cluster more has changed by the next.
	share = 100
	long  = 2 * time.Millisecond
)

// Pace is how long a rollout waits after something changed on its nodes. It grows with what one look costs, so that the cost of
// each node stays the same in a large cluster. It counts from the last look: what comes after a quiet while hardly waits.
type Pace struct{ cost, last atomic.Int64 }

// Took notes what a look that ends now has cost. One alone does not count for much.
func (p *Pace) Took(d time.Duration, now time.Time) {
	before := p.cost.Load()
	p.cost.Store(before + (int64(d)-before)/8)
	p.last.Store(now.UnixNano())
}

// Wait is how long to wait now.
func (p *Pace) Wait(now time.Time) time.Duration {
	cost := min(time.Duration(p.cost.Load()), slowest/share)
	wait := share * cost
	if cost > long {
		wait = time.Duration(float64(wait) * cost.Seconds() / long.Seconds())
	}
	since := max(now.Sub(time.Unix(0, p.last.Load())), 0)
	return max(Coalesce, min(wait, slowest)-since)
}
