// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
)

func TestReportsDue(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	r := NewReports()
	if got := r.Due("u", "5", now); !got.Equal(now) {
		t.Errorf("the first is due at %s", got)
	}
	r.Written("u", "10", now)
	for name, tc := range map[string]struct {
		rollout types.UID
		version string
		after   time.Duration
		want    time.Duration // after the write
	}{
		"at once":                             {"u", "10", 0, time.Second},
		"a moment later":                      {"u", "10", time.Second - 1, time.Second},
		"a second later":                      {"u", "10", time.Second, time.Second},
		"a minute later":                      {"u", "10", time.Minute, time.Second},
		"a second later, of a newer Plan":     {"u", "11", time.Second, time.Second},
		"a second later, of an older rollout": {"u", "9", time.Second, time.Second + Coalesce},
		"a minute later, of an older rollout": {"u", "9", time.Minute, time.Minute + Coalesce},
		"at once, of an older Plan":           {"u", "9", 0, time.Second},
		"a second later, of what version?":    {"u", "x", time.Second, time.Second},
		"of another rollout":                  {"other", "1", 0, 0},
	} {
		if got := r.Due(tc.rollout, tc.version, now.Add(tc.after)).Sub(now); got != tc.want {
			t.Errorf("%s: due after %s, want %s", name, got, tc.want)
		}
	}
	// What was written long ago is forgotten.
	r.Written("other", "20", now.Add(time.Hour+1))
	if _, ok := r.last["u"]; ok || len(r.last) != 1 {
		t.Errorf("remembers %v", r.last)
	}
}

func TestReportsStarted(t *testing.T) {
	r := NewReports()
	for _, hostname := range []string{"b", "a", "b"} {
		r.Start("u", hostname)
	}
	r.Start("other", "c")
	if diff := cmp.Diff([]string{"a", "b"}, r.TakeStarted("u")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := r.TakeStarted("u"); len(got) > 0 {
		t.Errorf("tells %v twice", got)
	}
	if diff := cmp.Diff([]string{"c"}, r.TakeStarted("other")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
