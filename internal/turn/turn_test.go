// SPDX-License-Identifier: Apache-2.0

package turn

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/kind/nodeturn"
)

// A turn that failed is tried again as often as the strategy says, and never where the rollout goes on without the node.
func TestRetriesOfAFailure(t *testing.T) {
	s := &v1alpha1.Strategy{Retries: &v1alpha1.Retries{Limit: 2, Backoff: &metav1.Duration{Duration: time.Minute}}}
	for name, tc := range map[string]struct {
		strategy *v1alpha1.Strategy
		failures int32
		skipped  bool
		want     time.Time
	}{
		"first failure": {s, 1, false, now.Add(time.Minute)},
		"second":        {s, 2, false, now.Add(2 * time.Minute)},
		"one too many":  {s, 3, false, time.Time{}},
		"skipped":       {s, 1, true, time.Time{}},
		"no strategy":   {nil, 1, false, time.Time{}},
		"no retries":    {&v1alpha1.Strategy{}, 1, false, time.Time{}},
	} {
		failure := &v1alpha1.ClaimFailure{Reason: v1alpha1.ReasonDrainTimeout, Time: metav1.Time{Time: now}, Skipped: tc.skipped}
		b := &nodeturn.Turn{Node: &corev1.Node{}, Claim: &v1alpha1.Claim{Failed: failure, Failures: tc.failures}}
		b.ShowFailure(tc.strategy)
		if u := b.Unit; !u.RetryAt.Equal(tc.want) || u.Skipped != tc.skipped || u.State != v1alpha1.UnitFailed {
			t.Errorf("%s: %+v, want a retry at %s", name, u, tc.want)
		}
	}
}

// After an error a rollout waits, however long ago its wake was due; a wake that is to come may shorten the wait.
func TestRetriesResult(t *testing.T) {
	clk := clocktesting.NewFakePassiveClock(now)
	for name, tc := range map[string]struct {
		wake time.Time
		err  error
		want time.Duration
	}{
		"nothing":                     {},
		"a wake":                      {wake: now.Add(time.Minute), want: time.Minute},
		"a wake in the past":          {wake: now.Add(-time.Minute), want: time.Millisecond},
		"an error":                    {err: errors.New("down"), want: FirstRetry},
		"an error, and a wake":        {wake: now.Add(time.Minute), err: errors.New("down"), want: FirstRetry},
		"an error, and a wake soon":   {wake: now.Add(FirstRetry / 2), err: errors.New("down"), want: FirstRetry / 2},
		"an error, and a wake passed": {wake: now.Add(-time.Minute), err: errors.New("down"), want: FirstRetry},
	} {
		got := NewRetries(clk, "Plan").Result(t.Context(), types.NamespacedName{Name: name}, tc.wake, tc.err)
		if got.RequeueAfter != tc.want {
			t.Errorf("%s: comes back after %s, want %s", name, got.RequeueAfter, tc.want)
		}
	}
}
