// SPDX-License-Identifier: Apache-2.0

package turn

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"moult.dev/moult/api/v1alpha1"
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
		b := &Turn{Node: &corev1.Node{}, Claim: &v1alpha1.Claim{Failed: failure, Failures: tc.failures}}
		b.ShowFailure(tc.strategy)
		if u := b.Unit; !u.RetryAt.Equal(tc.want) || u.Skipped != tc.skipped || u.State != v1alpha1.UnitFailed {
			t.Errorf("%s: %+v, want a retry at %s", name, u, tc.want)
		}
	}
}
