// SPDX-License-Identifier: Apache-2.0

package history

import (
	"cmp"
	"math"
	"slices"
	"time"

	"moult.dev/moult/api/v1alpha1"
)

// Bucket n holds turns of at most growth to the power of n seconds. The last bucket, of 50 hours, holds all longer turns.
const (
	growth  = 1.1
	buckets = 128
)

// AddTurns adds the durations of turns to the run that goes on, if there is one.
func AddTurns(runs []v1alpha1.Run, took ...time.Duration) {
	if len(took) == 0 || len(runs) == 0 || runs[0].EndedAt != nil {
		return
	}
	r := &runs[0]
	if r.Turns == nil {
		r.Turns = &v1alpha1.RunTurns{}
	}
	t := r.Turns
	for _, d := range took {
		n := int32(min(math.Ceil(math.Log(max(1, d.Seconds()))/math.Log(growth)), buckets-1))
		i, ok := slices.BinarySearchFunc(t.Buckets, n, func(b v1alpha1.RunBucket, n int32) int { return cmp.Compare(b.Bucket, n) })
		if !ok {
			t.Buckets = slices.Insert(t.Buckets, i, v1alpha1.RunBucket{Bucket: n})
		}
		t.Buckets[i].Count++
		t.Count++
	}
	t.MedianSeconds, t.P95Seconds = quantile(t, 50), quantile(t, 95)
}

// quantile returns the duration that this percentage of the turns did not exceed, in seconds.
func quantile(t *v1alpha1.RunTurns, percent int64) int32 {
	rest := (int64(t.Count)*percent + 99) / 100
	for _, b := range t.Buckets {
		if rest -= int64(b.Count); rest <= 0 {
			return int32(math.Round(math.Pow(growth, float64(b.Bucket))))
		}
	}
	return 0
}
