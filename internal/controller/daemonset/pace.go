// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"sync/atomic"
	"time"
)

// What changes on nodes and pods is looked at together, after at least coalesce and at most slowest.
const (
	coalesce = 50 * time.Millisecond
	slowest  = 500 * time.Millisecond
	// share bounds what looking may take of the time: a look that takes longer is taken more seldom.
	share = 50
)

// What fails is tried again, first soon and then more and more seldom, but never as seldom as to be forgotten.
const (
	firstRetry = 100 * time.Millisecond
	lastRetry  = 30 * time.Second
)

// pace is how long an ExtendedDaemonSet waits after something changed. It grows with what one look costs.
type pace struct{ cost atomic.Int64 }

// took notes what a look has cost. One alone does not count for much.
func (p *pace) took(d time.Duration) {
	last := p.cost.Load()
	p.cost.Store(last + (int64(d)-last)/8)
}

func (p *pace) wait() time.Duration {
	return min(max(coalesce, share*time.Duration(p.cost.Load())), slowest)
}
