// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
)

func TestCount(t *testing.T) {
	for _, tc := range []struct {
		from *intstr.IntOrString
		of   int
		want int
	}{
		{nil, 10, 0},
		{ptr.To(intstr.FromInt32(0)), 10, 0},
		{ptr.To(intstr.FromInt32(3)), 10, 3},
		{ptr.To(intstr.FromInt32(30)), 10, 30},
		{ptr.To(intstr.FromInt32(-3)), 10, 0},
		{ptr.To(intstr.FromString("0%")), 10, 0},
		{ptr.To(intstr.FromString("1%")), 10, 1},
		{ptr.To(intstr.FromString("10%")), 10, 1},
		{ptr.To(intstr.FromString("10%")), 11, 2},
		{ptr.To(intstr.FromString("33%")), 3, 1},
		{ptr.To(intstr.FromString("34%")), 3, 2},
		{ptr.To(intstr.FromString("50%")), 0, 0},
		{ptr.To(intstr.FromString("50%")), -4, 0},
		{ptr.To(intstr.FromString("100%")), 7, 7},
		{ptr.To(intstr.FromString("99%")), 10_000, 9900},
		{ptr.To(intstr.FromString("150%")), 4, 6},
		{ptr.To(intstr.FromString("2147483647%")), 10_000, 214_748_364_700},
		{ptr.To(intstr.FromString("-1%")), 10, 0},
		{ptr.To(intstr.FromString("3")), 10, 0},
		{ptr.To(intstr.FromString("many")), 10, 0},
		{ptr.To(intstr.FromString("%")), 10, 0},
		{ptr.To(intstr.FromString("")), 10, 0},
	} {
		if got := Count(tc.from, tc.of); got != tc.want {
			t.Errorf("%v of %d: got %d, want %d", tc.from, tc.of, got, tc.want)
		}
	}
}

func TestCreationLimit(t *testing.T) {
	type rolling = edsv1.ExtendedDaemonSetSpecStrategyRollingUpdate
	start := func(parallel int32, interval time.Duration, increase intstr.IntOrString) *rolling {
		return &rolling{
			MaxParallelPodCreation: &parallel, SlowStartIntervalDuration: &metav1.Duration{Duration: interval}, SlowStartAdditiveIncrease: &increase,
		}
	}
	tenth, five := intstr.FromString("10%"), intstr.FromInt32(5)
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		ru    *rolling
		since time.Time
		nodes int
		limit int
		// next is in how long it grows; 0: never.
		next time.Duration
	}{
		"the defaults, empty":                        {&rolling{}, now, 100, 1, time.Minute},
		"the defaults after an hour and a half":      {&rolling{}, now.Add(-90*time.Minute - 10*time.Second), 100, 91, 50 * time.Second},
		"the defaults in the end":                    {&rolling{}, now.Add(-250 * time.Minute), 1000, 250, 0},
		"just before an interval ends":               {start(250, time.Minute, five), now.Add(-time.Minute + 1), 100, 5, 1},
		"just when it ends":                          {start(250, time.Minute, five), now.Add(-time.Minute), 100, 10, time.Minute},
		"a percentage":                               {start(250, time.Minute, tenth), now.Add(-2 * time.Minute), 101, 33, time.Minute},
		"a percentage of no nodes":                   {start(250, time.Minute, tenth), now, 0, 1, time.Minute},
		"never more than in parallel":                {start(12, time.Minute, five), now.Add(-2 * time.Minute), 100, 12, 0},
		"just as many as in parallel":                {start(10, time.Minute, five), now.Add(-time.Minute), 100, 10, 0},
		"one in parallel":                            {start(1, time.Minute, five), now, 100, 1, 0},
		"none in parallel":                           {start(0, time.Minute, five), now, 100, 0, 0},
		"an increase of zero is one":                 {start(250, time.Minute, intstr.FromInt32(0)), now.Add(-2 * time.Minute), 100, 3, time.Minute},
		"an increase that can't be read is one":      {start(250, time.Minute, intstr.FromString("some")), now.Add(-2 * time.Minute), 100, 3, time.Minute},
		"before it began":                            {start(250, time.Minute, five), now.Add(time.Second), 100, 5, time.Minute + time.Second},
		"begun long ago, with the shortest interval": {start(1<<31-1, 1, intstr.FromInt32(1<<31-1)), now.AddDate(-400, 0, 0), 100, 1<<31 - 1, 0},
	} {
		defaulted := Defaulted(&spec{Strategy: edsv1.ExtendedDaemonSetSpecStrategy{RollingUpdate: *tc.ru}}, "")
		limit, next := CreationLimit(&defaulted.Strategy.RollingUpdate, tc.since, now, tc.nodes)
		var want time.Time
		if tc.next > 0 {
			want = now.Add(tc.next)
		}
		if limit != tc.limit || !next.Equal(want) {
			t.Errorf("%s: got %d and %s, want %d and %s", name, limit, next, tc.limit, want)
		}
	}
}

// TestCreationLimitGrows finds the limit the same until the instant that is told, and higher then.
func TestCreationLimitGrows(t *testing.T) {
	seed := seedOf(t)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 2000 {
		now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
		since := now.Add(time.Duration(r.Int64N(int64(4*time.Hour))) - 3*time.Hour)
		increase := intstr.FromInt32(r.Int32N(20))
		if r.IntN(2) == 0 {
			increase = intstr.FromString("7%")
		}
		ru := &edsv1.ExtendedDaemonSetSpecStrategyRollingUpdate{
			MaxParallelPodCreation: ptr.To(1 + r.Int32N(300)), SlowStartAdditiveIncrease: &increase,
			SlowStartIntervalDuration: &metav1.Duration{Duration: time.Duration(1 + r.Int64N(int64(5*time.Minute)))},
		}
		nodes := r.IntN(200)
		limit, next := CreationLimit(ru, since, now, nodes)
		if limit > int(*ru.MaxParallelPodCreation) {
			t.Fatalf("%d of at most %d", limit, *ru.MaxParallelPodCreation)
		}
		if next.IsZero() {
			if later, _ := CreationLimit(ru, since, now.AddDate(1, 0, 0), nodes); later != limit {
				t.Fatalf("it grows from %d to %d at last, and no one says so", limit, later)
			}
			continue
		}
		before, same := CreationLimit(ru, since, next.Add(-1), nodes)
		after, _ := CreationLimit(ru, since, next, nodes)
		if !next.After(now) || before != limit || !same.Equal(next) || after <= limit {
			t.Fatalf("%d at first, then %d, and %d at %s after", limit, before, after, next.Sub(now))
		}
	}
}

// seedOf is the seed of a test's random numbers, the same in each run. MOULT_SEED=n draws others.
func seedOf(t *testing.T) uint64 {
	t.Helper()
	seed := uint64(1)
	if text := os.Getenv("MOULT_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("reading $MOULT_SEED, %v", err)
		}
	}
	t.Logf("MOULT_SEED=%d", seed)
	return seed
}
