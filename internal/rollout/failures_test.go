// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/utils/ptr"

	"moult.dev/moult/api/v1alpha1"
)

func TestRetryAt(t *testing.T) {
	never := time.Duration(-1)
	for name, tc := range map[string]struct {
		retries  *v1alpha1.Retries
		failures int32
		want     time.Duration
	}{
		"none":                {nil, 1, never},
		"the first":           {&v1alpha1.Retries{Limit: 1}, 1, time.Minute},
		"one too many":        {&v1alpha1.Retries{Limit: 1}, 2, never},
		"it doubles":          {&v1alpha1.Retries{Limit: 9}, 4, 8 * time.Minute},
		"up to an hour":       {&v1alpha1.Retries{Limit: 9}, 7, time.Hour},
		"for ever":            {&v1alpha1.Retries{Limit: 100}, 100, time.Hour},
		"of its own":          {&v1alpha1.Retries{Limit: 9, Backoff: duration(10 * time.Second)}, 3, 40 * time.Second},
		"bounded":             {&v1alpha1.Retries{Limit: 9, Backoff: duration(10 * time.Second), MaxBackoff: duration(25 * time.Second)}, 3, 25 * time.Second},
		"more than the bound": {&v1alpha1.Retries{Limit: 9, Backoff: duration(2 * time.Hour)}, 1, time.Hour},
		"it does not overflow": {
			&v1alpha1.Retries{Limit: 100, Backoff: duration(math.MaxInt64 / 2), MaxBackoff: duration(math.MaxInt64)}, 9, math.MaxInt64,
		},
	} {
		t.Run(name, func(t *testing.T) {
			want := noon.Add(tc.want)
			if tc.want == never {
				want = time.Time{}
			}
			if got := RetryAt(tc.retries, tc.failures, noon); !got.Equal(want) {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
}

func retried(at time.Duration) func(*Unit) {
	return func(u *Unit) { u.RetryAt, u.Claimed = noon.Add(at), true }
}

func claims(u *Unit) { u.Claimed = true }

func isSkipped(u *Unit) { u.Skipped = true }

func lost(node string, change ...func(*Unit)) Unit {
	u := failed(node)
	u.Claimed = true
	for _, c := range change {
		c(&u)
	}
	return u
}

func TestFailures(t *testing.T) {
	for name, tc := range map[string]struct {
		strategy Strategy
		units    []Unit
		want     Decision
	}{
		"a failed one is tried again when it is time": {
			strategy: Strategy{MaxConcurrent: 1},
			units:    []Unit{lost("a", retried(0)), outdated("b")},
			want: Decision{
				Start:   []string{"a"},
				Waiting: []Wait{{Node: "b", Reason: v1alpha1.ReasonMaxConcurrent, Message: "1 of 1 slots taken (a)"}},
			},
		},
		"and before that says when": {
			strategy: Strategy{MaxConcurrent: 1},
			units:    []Unit{lost("a", retried(time.Minute)), outdated("b")},
			want: Decision{
				Waiting: []Wait{
					{Node: "a", Reason: v1alpha1.ReasonJobFailed, Message: "a broke (retry at 2026-11-20T12:01:00Z)", Holds: true},
					{Node: "b", Reason: v1alpha1.ReasonMaxConcurrent, Message: "1 of 1 slots taken, 1 of them by failed nodes (a)"},
				},
				Next: noon.Add(time.Minute),
			},
		},
		"it keeps its slot until then, also where failures are allowed": {
			strategy: Strategy{MaxConcurrent: 1, MaxFailures: ptr.To(1)},
			units:    []Unit{lost("a", retried(time.Minute)), outdated("b")},
			want: Decision{
				Waiting: []Wait{
					{Node: "a", Reason: v1alpha1.ReasonJobFailed, Message: "a broke (retry at 2026-11-20T12:01:00Z)", Holds: true},
					{Node: "b", Reason: v1alpha1.ReasonMaxConcurrent, Message: "1 of 1 slots taken, 1 of them by failed nodes (a)"},
				},
				Next: noon.Add(time.Minute),
			},
		},
		"one that has failed for good gives its slot up where failures are allowed": {
			strategy: Strategy{MaxConcurrent: 1, MaxFailures: ptr.To(1)},
			units:    []Unit{lost("a"), outdated("b")},
			want: Decision{
				Start:   []string{"b"},
				Waiting: []Wait{{Node: "a", Reason: v1alpha1.ReasonJobFailed, Message: "a broke"}},
			},
		},
		"one too many halts": {
			strategy: Strategy{MaxConcurrent: 1, MaxFailures: ptr.To(1)},
			units:    []Unit{lost("a"), lost("b"), outdated("c")},
			want: Decision{
				Waiting: []Wait{
					{Node: "a", Reason: v1alpha1.ReasonJobFailed, Message: "a broke"},
					{Node: "b", Reason: v1alpha1.ReasonJobFailed, Message: "b broke"},
					{Node: "c", Reason: v1alpha1.ReasonHalted, Message: "2 nodes failed; maxFailures is 1: a, b"},
				},
				Halted: "2 nodes failed; maxFailures is 1: a, b",
			},
		},
		"0 halts at the first, and what is claimed may be tried again": {
			strategy: Strategy{MaxConcurrent: 2, MaxFailures: ptr.To(0)},
			units:    []Unit{lost("a"), outdated("b", claims), outdated("c")},
			want: Decision{
				Start: []string{"b"},
				Waiting: []Wait{
					{Node: "a", Reason: v1alpha1.ReasonJobFailed, Message: "a broke"},
					{Node: "c", Reason: v1alpha1.ReasonHalted, Message: "1 node failed; maxFailures is 0: a"},
				},
				Halted: "1 node failed; maxFailures is 0: a",
			},
		},
		"one to be tried again does not count": {
			strategy: Strategy{MaxConcurrent: 2, MaxFailures: ptr.To(0)},
			units:    []Unit{lost("a", retried(time.Minute)), outdated("b")},
			want: Decision{
				Start:   []string{"b"},
				Waiting: []Wait{{Node: "a", Reason: v1alpha1.ReasonJobFailed, Message: "a broke (retry at 2026-11-20T12:01:00Z)", Holds: true}},
				Next:    noon.Add(time.Minute),
			},
		},
		"one that was skipped holds nothing, and does not count": {
			strategy: Strategy{MaxConcurrent: 1, MaxFailures: ptr.To(0)},
			units:    []Unit{failedAnd("a", isSkipped), outdated("b")},
			want: Decision{
				Start:   []string{"b"},
				Waiting: []Wait{{Node: "a", Reason: v1alpha1.ReasonJobFailed, Message: "a broke"}},
			},
		},
		"one that is excused holds nothing, and does not count": {
			strategy: Strategy{MaxConcurrent: 1, MaxFailures: ptr.To(0)},
			units:    []Unit{failedAnd("a", excused), outdated("b")},
			want: Decision{
				Start:   []string{"b"},
				Waiting: []Wait{{Node: "a", Reason: v1alpha1.ReasonJobFailed, Message: "a broke"}},
			},
		},
		"one that is excused and must be tried again holds nothing either": {
			strategy: Strategy{MaxConcurrent: 1},
			units:    []Unit{failedAnd("a", func(u *Unit) { u.Excused, u.RetryAt = true, noon.Add(time.Minute) }), outdated("b")},
			want: Decision{
				Start:   []string{"b"},
				Waiting: []Wait{{Node: "a", Reason: v1alpha1.ReasonJobFailed, Message: "a broke (retry at 2026-11-20T12:01:00Z)"}},
				Next:    noon.Add(time.Minute),
			},
		},
		"one that opted out does not count": {
			strategy: Strategy{MaxConcurrent: 1, MaxFailures: ptr.To(0)},
			units:    []Unit{failedAnd("a", optsOut), outdated("b")},
			want: Decision{
				Start:   []string{"b"},
				Waiting: []Wait{{Node: "a", Reason: v1alpha1.ReasonJobFailed, Message: "a broke"}},
			},
		},
		"a concurrency that was lowered lets no retry begin beside another turn": {
			strategy: Strategy{MaxConcurrent: 1},
			units:    []Unit{lost("a", retried(0)), unit("b", v1alpha1.UnitUpdating)},
			want: Decision{
				Waiting: []Wait{{Node: "a", Reason: v1alpha1.ReasonMaxConcurrent, Message: "2 of 1 slots taken, 1 of them by failed nodes (a)", Holds: true}},
			},
		},
		"nor a turn start over beside one that waits to be tried again": {
			strategy: Strategy{MaxConcurrent: 1},
			units:    []Unit{lost("a", retried(time.Minute)), outdated("b", inTurn)},
			want: Decision{
				Waiting: []Wait{
					{Node: "a", Reason: v1alpha1.ReasonJobFailed, Message: "a broke (retry at 2026-11-20T12:01:00Z)", Holds: true},
					{Node: "b", Reason: v1alpha1.ReasonMaxConcurrent, Message: "2 of 1 slots taken, 1 of them by failed nodes (a)", Holds: true},
				},
				Next: noon.Add(time.Minute),
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			tc.strategy.UID = own
			if diff := cmp.Diff(tc.want, Decide(tc.strategy, tc.units, Fleet{}, noon), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func failedAnd(node string, change func(*Unit)) Unit {
	u := failed(node)
	change(&u)
	return u
}

// A turn whose earlier attempt uses no budget is tried again in a halted rollout too, and asks budgets as any other.
func TestRetriedAsksBudgets(t *testing.T) {
	again := Unit{Node: "a", State: v1alpha1.UnitOutdated, InTurn: true, Retried: true}
	for name, tc := range map[string]struct {
		budgets []Budget
		start   []string
	}{
		"no budget":          {nil, []string{"a"}},
		"a budget of one":    {[]Budget{{Name: "all", MaxUnavailable: &Amount{N: 2}}}, []string{"a"}},
		"a budget of no one": {[]Budget{{Name: "all", MaxUnavailable: &Amount{N: 1}}}, nil},
	} {
		s := Strategy{MaxConcurrent: 2, MaxFailures: ptr.To(0)}
		f := Fleet{Nodes: map[string]*Node{"a": well(""), "b": well(""), "c": well("", cordoned)}, Budgets: tc.budgets}
		if d := Decide(s, []Unit{lost("b"), again}, f, noon); !slices.Equal(d.Start, tc.start) || d.Halted == "" {
			t.Errorf("%s: %+v", name, d)
		}
	}
}
