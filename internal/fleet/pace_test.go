// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"testing"
	"time"
)

func TestPace(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		name  string
		cost  time.Duration
		since time.Duration
		want  time.Duration
	}{
		{"looks that cost nothing are joined for a moment", 0, 0, Coalesce},
		{"a look takes a hundredth of the time", 2 * time.Millisecond, 0, 200 * time.Millisecond},
		{"what has passed since the last one counts", 2 * time.Millisecond, 120 * time.Millisecond, 80 * time.Millisecond},
		{"after a quiet while it is short", 2 * time.Millisecond, time.Hour, Coalesce},
		{"a long look takes less than a hundredth", 6 * time.Millisecond, 0, 1800 * time.Millisecond},
		{"it never waits longer than two seconds", time.Minute, 0, slowest},
		{"a clock that was put back is no reason to wait longer", 2 * time.Millisecond, -time.Hour, 200 * time.Millisecond},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := &Pace{}
			p.cost.Store(int64(test.cost))
			p.Took(test.cost, now)
			if got := p.Wait(now.Add(test.since)); got != test.want {
				t.Errorf("it waits %s, want %s", got, test.want)
			}
		})
	}
}
