// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"sync/atomic"
	"time"
)

// What changes on a Plan's nodes is looked at together, after at least coalesce and at most slowest.
const (
	coalesce = 50 * time.Millisecond
	slowest  = time.Second
	// share bounds what looking at Plans may take of the time: a look that takes longer is taken more seldom. One that takes
	// longer than long takes a smaller share still: in a large cluster more has changed by the next.
	share = 100
	long  = 2 * time.Millisecond
)

// pace is how long a Plan waits after something changed on its nodes. It grows with what one look costs, so that the cost of
// each node stays the same in a large cluster.
type pace struct{ cost atomic.Int64 }

// took notes what a look has cost. One alone does not count for much.
func (p *pace) took(d time.Duration) {
	last := p.cost.Load()
	p.cost.Store(last + (int64(d)-last)/8)
}

func (p *pace) wait() time.Duration {
	cost := min(time.Duration(p.cost.Load()), slowest/share)
	wait := share * cost
	if cost > long {
		wait = time.Duration(float64(wait) * cost.Seconds() / long.Seconds())
	}
	return min(max(coalesce, wait), slowest)
}
