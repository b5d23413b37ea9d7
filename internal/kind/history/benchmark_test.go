// SPDX-License-Identifier: Apache-2.0

package history_test

import (
	"fmt"
	"testing"
	"time"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/kind/history"
)

// BenchmarkNext is what a history adds to one status write of a rollout that has ten runs. A rollout writes its status once a second at most.
func BenchmarkNext(b *testing.B) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	o := history.Observation{CreatedBy: "argocd-controller", Counts: v1alpha1.UnitCounts{Total: 1000, Updated: 500, Updating: 50, Waiting: 450}}
	var runs []v1alpha1.Run
	for i := range v1alpha1.MaxRuns {
		o.Revision = fmt.Sprintf("v1.33.%d@d31f40c0", i)
		runs = history.Next(runs, o, now.Add(time.Duration(i)*time.Hour))
	}
	o.Took = []time.Duration{95 * time.Second}
	for b.Loop() {
		history.Next(runs, o, now)
	}
}
