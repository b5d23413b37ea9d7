// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"time"

	"k8s.io/utils/clock"
)

// spread returns a duration, up to a share more or less at random.
func spread(d time.Duration, share float64, random func() float64) time.Duration {
	return d + time.Duration(float64(d)*share*(2*random()-1))
}

// backoff is how long to wait after each failure: twice as long as before, up to most, and of that a random half or more.
type backoff struct {
	first, most time.Duration
	failures    int
}

// next returns how long to wait after one more failure.
func (b *backoff) next(random func() float64) time.Duration {
	d := b.most
	if b.failures < 30 && b.first<<b.failures < b.most {
		d = b.first << b.failures
	}
	b.failures++
	return d/2 + time.Duration(random()*float64(d/2))
}

// reset starts the backoff again after a success.
func (b *backoff) reset() { b.failures = 0 }

// sleep waits; it returns false if the context ends before.
func sleep(ctx context.Context, c clock.Clock, d time.Duration) bool {
	timer := c.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C():
		return true
	}
}
