// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

func TestReportsNext(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	r := NewReports(StatusDelay)
	if write, _ := r.Next("u", "5", true, now); !write {
		t.Error("the first is not written")
	}
	r.Written("u", "5", now.Add(-time.Minute))
	for _, after := range []time.Duration{0, time.Millisecond, StatusDelay} {
		if write, at := r.Next("u", "5", true, now.Add(after)); write != (after == StatusDelay) || !write && !at.Equal(now.Add(StatusDelay)) {
			t.Errorf("%s after the change it is written: %t, and looked at again at %s", after, write, at)
		}
	}
	r.delay = 0
	const never = time.Duration(-1)
	for name, tc := range map[string]struct {
		rollout types.UID
		version string
		changed bool
		after   time.Duration
		write   bool
		again   time.Duration // after the write
	}{
		"at once":                              {"u", "10", true, 0, false, time.Second},
		"a moment later":                       {"u", "10", true, time.Second - 1, false, time.Second},
		"a second later":                       {"u", "10", true, time.Second, true, never},
		"a second later, unchanged":            {"u", "10", false, time.Second, false, never},
		"a second later, of a newer Plan":      {"u", "11", true, time.Second, true, never},
		"a second later, of an older rollout":  {"u", "9", true, time.Second, false, time.Second + Coalesce},
		"an older rollout that looks the same": {"u", "9", false, 2 * time.Second, false, 2*time.Second + Coalesce},
		"after etcd was restored":              {"u", "9", true, time.Minute, true, never},
		"at once, of an older Plan":            {"u", "9", true, 0, false, time.Second},
		"a second later, of what version?":     {"u", "x", true, time.Second, true, never},
		"of another rollout":                   {"other", "1", true, 0, true, never},
	} {
		r.Written("u", "10", now) // It forgets the changes that other cases have noticed.
		write, at := r.Next(tc.rollout, tc.version, tc.changed, now.Add(tc.after))
		again := never
		if !at.IsZero() {
			again = at.Sub(now)
		}
		if write != tc.write || again != tc.again {
			t.Errorf("%s: written %t, again after %s, want %t and %s", name, write, again, tc.write, tc.again)
		}
	}
	// What was written long ago is forgotten.
	r.Written("other", "20", now.Add(keptFor+1))
	if _, ok := r.last["u"]; ok || len(r.last) != 1 {
		t.Errorf("remembers %v", r.last)
	}
}
