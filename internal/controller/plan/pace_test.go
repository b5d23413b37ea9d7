// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"
	"time"
)

func TestPace(t *testing.T) {
	for cost, want := range map[time.Duration]time.Duration{
		0:                      coalesce,
		100 * time.Microsecond: coalesce,
		time.Millisecond:       100 * time.Millisecond,
		2 * time.Millisecond:   200 * time.Millisecond,
		4 * time.Millisecond:   800 * time.Millisecond,
		10 * time.Millisecond:  slowest,
		time.Hour:              slowest,
	} {
		var p pace
		p.cost.Store(int64(cost))
		if got := p.wait(); got != want {
			t.Errorf("after looks of %v it waits %v, want %v", cost, got, want)
		}
	}
}
