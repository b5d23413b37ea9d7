// SPDX-License-Identifier: Apache-2.0

package history_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/kind/history"
)

var began = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

func at(seconds int) *metav1.Time {
	return &metav1.Time{Time: began.Add(time.Duration(seconds) * time.Second)}
}

func counts(total, updated, updating, failed int32) v1alpha1.UnitCounts {
	return v1alpha1.UnitCounts{Total: total, Updated: updated, Updating: updating, Failed: failed, Waiting: total - updated - updating - failed}
}

// observed is an observation at a second.
type observed struct {
	second int
	history.Observation
}

func of(second int, revision string, c v1alpha1.UnitCounts) observed {
	return observed{second, history.Observation{Revision: revision, CreatedBy: "kubectl", Counts: c, Complete: c.Total == c.Updated}}
}

// with changes an observation.
func (o observed) with(change func(*history.Observation)) observed {
	change(&o.Observation)
	return o
}

func waits(reason v1alpha1.Reason) func(*history.Observation) {
	return func(o *history.Observation) { o.Wait = reason }
}

func took(all ...time.Duration) func(*history.Observation) {
	return func(o *history.Observation) { o.Took = all }
}

// follow returns the runs after these observations. Each is seen twice, as after a restart, but turns end once.
func follow(t *testing.T, runs []v1alpha1.Run, all ...observed) []v1alpha1.Run {
	t.Helper()
	for _, o := range all {
		now := began.Add(time.Duration(o.second)*time.Second + 300*time.Millisecond)
		runs = history.Next(runs, o.Observation, now)
		o.Took = nil
		again := history.Next(runs, o.Observation, now.Add(time.Hour))
		if diff := cmp.Diff(runs, again); diff != "" {
			t.Fatalf("the same observation at %d again changes: %s", o.second, diff)
		}
	}
	return runs
}

func TestRuns(t *testing.T) {
	complete := v1alpha1.Run{
		Revision: "v2", CreatedBy: "kubectl", CreatedAt: *at(0), StartedAt: at(10), EndedAt: at(30), Result: v1alpha1.RunComplete, Total: 2, Updated: 2,
		Waits: []v1alpha1.RunWait{{Reason: v1alpha1.ReasonOutsideWindow, Seconds: 10}},
		Turns: &v1alpha1.RunTurns{Count: 2, MedianSeconds: 11, P95Seconds: 21},
	}
	whole := []observed{
		of(0, "v2", counts(2, 0, 0, 0)).with(waits(v1alpha1.ReasonOutsideWindow)),
		of(10, "v2", counts(2, 0, 1, 0)).with(waits(v1alpha1.ReasonMaxConcurrent)),
		of(20, "v2", counts(2, 1, 1, 0)).with(took(10 * time.Second)),
		of(30, "v2", counts(2, 2, 0, 0)).with(took(20 * time.Second)),
	}
	later := complete
	later.Total = 3
	superseded := v1alpha1.Run{
		Revision: "v2", CreatedBy: "kubectl", CreatedAt: *at(0), StartedAt: at(5), FailedAt: at(5), HaltedAt: at(5), EndedAt: at(9),
		Result: v1alpha1.RunSuperseded, Total: 3, Failures: []v1alpha1.RunFailure{{Reason: v1alpha1.ReasonJobFailed, Nodes: 2}},
	}
	fails := func(n int32) func(*history.Observation) {
		return func(o *history.Observation) {
			o.Halted, o.Failed = n > 0, map[v1alpha1.Reason]int32{v1alpha1.ReasonJobFailed: n}
		}
	}
	wave := &v1alpha1.WaveStatus{Name: "canary", Revision: "v2", State: v1alpha1.WaveWaitingForApproval}
	held := func(o *history.Observation) { o.Paused, o.Wave = true, wave }
	approved := func(o *history.Observation) {
		o.Wave = &v1alpha1.WaveStatus{Name: "canary", Revision: "v2", State: v1alpha1.WaveComplete}
		o.Approval = &v1alpha1.WaveApproval{Of: "canary@v2", By: "ann"}
	}
	stale := func(o *history.Observation) {
		o.Wave, o.Approval = wave, &v1alpha1.WaveApproval{Of: "canary@v1", By: "eve"}
	}
	for name, tc := range map[string]struct {
		seen []observed
		want []v1alpha1.Run
	}{
		"a cluster at rest has no run": {[]observed{of(0, "v2", counts(3, 3, 0, 0)), of(0, "v2", counts(0, 0, 0, 0))}, nil},
		"an unknown revision":          {[]observed{of(0, "", counts(3, 0, 0, 0))}, nil},
		"complete":                     {whole, []v1alpha1.Run{complete}},
		"a later node does not reopen": {append(whole, of(99, "v2", counts(3, 2, 1, 0))), []v1alpha1.Run{later}},
		"a later node fails": {append(whole, of(99, "v2", counts(3, 2, 0, 1)).with(fails(1))), []v1alpha1.Run{{
			Revision: "v2", CreatedBy: "kubectl", CreatedAt: *at(99), StartedAt: at(99), FailedAt: at(99), HaltedAt: at(99), Total: 3, Updated: 2,
			Failures: []v1alpha1.RunFailure{{Reason: v1alpha1.ReasonJobFailed, Nodes: 1}}, Ongoing: []v1alpha1.RunState{v1alpha1.RunFailed, v1alpha1.RunHalted},
		}, complete}},
		"the failed are counted once": {[]observed{
			of(0, "v2", counts(3, 0, 0, 0)), of(5, "v2", counts(3, 0, 0, 1)).with(fails(1)), of(6, "v2", counts(3, 0, 0, 2)).with(fails(2)),
			of(7, "v2", counts(3, 0, 0, 1)).with(fails(1)), of(9, "v3", counts(3, 3, 0, 0)),
		}, []v1alpha1.Run{superseded}},
		"fails again": {[]observed{
			of(0, "v2", counts(3, 0, 0, 1)).with(fails(1)), of(5, "v2", counts(3, 0, 1, 0)), of(6, "v2", counts(3, 0, 0, 1)).with(fails(1)),
		}, []v1alpha1.Run{{
			Revision: "v2", CreatedBy: "kubectl", CreatedAt: *at(0), StartedAt: at(0), FailedAt: at(6), HaltedAt: at(6), Total: 3,
			Failures: []v1alpha1.RunFailure{{Reason: v1alpha1.ReasonJobFailed, Nodes: 1}},
			Ongoing:  []v1alpha1.RunState{v1alpha1.RunFailed, v1alpha1.RunHalted},
		}}},
		"paused, and approved": {[]observed{of(0, "v2", counts(3, 1, 0, 0)).with(held), of(5, "v2", counts(3, 1, 0, 0)).with(approved)}, []v1alpha1.Run{{
			Revision: "v2", CreatedBy: "kubectl", ApprovedBy: "ann", CreatedAt: *at(0), PausedAt: at(0), ApprovalAt: at(0), Total: 3, Updated: 1,
		}}},
		"an approval of another revision": {[]observed{of(0, "v2", counts(3, 1, 0, 0)).with(stale)}, []v1alpha1.Run{{
			Revision: "v2", CreatedBy: "kubectl", CreatedAt: *at(0), ApprovalAt: at(0), Total: 3, Updated: 1,
			Ongoing: []v1alpha1.RunState{v1alpha1.RunAwaitsApproval},
		}}},
		"back to an earlier revision": {[]observed{
			of(0, "v2", counts(1, 0, 0, 0)), of(1, "v1", counts(1, 1, 0, 0)), of(2, "v2", counts(1, 0, 0, 0)),
		}, []v1alpha1.Run{
			{Revision: "v2", CreatedBy: "kubectl", CreatedAt: *at(2), Total: 1},
			{Revision: "v2", CreatedBy: "kubectl", CreatedAt: *at(0), EndedAt: at(1), Result: v1alpha1.RunSuperseded, Total: 1},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, follow(t, nil, tc.seen...)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestRandomRuns sees random observations, each also after a restart that has lost or kept the write.
func TestRandomRuns(t *testing.T) {
	reasons := []v1alpha1.Reason{"", "A", "B", "C", "D", "E", "F", "G"}
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 1))
		var runs []v1alpha1.Run
		second, revision := 0, 0
		for range 60 {
			second += r.IntN(100)
			revision += r.IntN(10) / 9
			total := r.Int32N(9)
			updated := r.Int32N(total + 1)
			updating := r.Int32N(total - updated + 1)
			o := of(second, fmt.Sprint("v", revision), counts(total, updated, updating, r.Int32N(total-updated-updating+1)))
			o.Wait, o.Paused, o.Halted = reasons[r.IntN(len(reasons))], r.IntN(2) == 0, r.IntN(3) == 0
			o.Failed = map[v1alpha1.Reason]int32{}
			for range o.Counts.Failed {
				o.Failed[reasons[1+r.IntN(len(reasons)-1)]]++
			}
			for range r.IntN(3) {
				o.Took = append(o.Took, time.Duration(r.IntN(400_000))*time.Second)
			}
			if r.IntN(4) == 0 {
				follow(t, runs, o) // This write is lost.
			}
			runs = follow(t, runs, o)
			check(t, seed, runs)
		}
	}
}

func check(t *testing.T, seed uint64, runs []v1alpha1.Run) {
	t.Helper()
	seen := map[string]bool{}
	for i := range runs {
		r := &runs[i]
		ended := r.EndedAt != nil
		switch {
		case seen[r.Revision] && runs[i-1].FailedAt == nil && runs[i-1].HaltedAt == nil:
			t.Fatalf("seed %d: revision %s has two runs", seed, r.Revision)
		case !ended && i > 0, ended != (r.Result != ""), ended && (len(r.Ongoing) > 0 || r.Waiting != nil || r.Turns != nil && r.Turns.Buckets != nil):
			t.Fatalf("seed %d: run %d: %+v", seed, i, r)
		case len(r.Waits) > 5, len(r.Failures) > 5:
			t.Fatalf("seed %d: too long: %+v", seed, r)
		}
		seen[r.Revision] = true
	}
	if text, err := json.Marshal(runs); err != nil || len(text) > history.MaxSize || len(runs) > v1alpha1.MaxRuns {
		t.Fatalf("seed %d: %d runs of %d bytes, %v", seed, len(runs), len(text), err)
	}
}

// TestSize drops the oldest runs where all texts have their longest length.
func TestSize(t *testing.T) {
	var runs []v1alpha1.Run
	long := strings.Repeat("ä", 600)
	for i := range 12 {
		revision := fmt.Sprint(i, long)
		o := of(i*1000, revision, counts(999, 0, 1, 400)).with(func(o *history.Observation) {
			o.CreatedBy, o.Halted, o.Paused, o.Failed = long, true, true, map[v1alpha1.Reason]int32{}
			o.Wave = &v1alpha1.WaveStatus{Revision: "r", State: v1alpha1.WaveWaitingForApproval}
			o.Approval = &v1alpha1.WaveApproval{Of: "w@r", By: strings.Repeat("u", 512)}
			for n := range 9 {
				o.Failed[v1alpha1.Reason(fmt.Sprint(n, strings.Repeat("r", 63)))] = 100
			}
			for n := range 128 {
				o.Took = append(o.Took, time.Duration(1<<(n%20))*time.Second+time.Duration(n)*time.Minute)
			}
		})
		runs = follow(t, runs, o)
		for n := range 9 {
			runs = follow(t, runs, of(i*1000+n+1, revision, counts(999, 0, 0, 400)).with(waits(v1alpha1.Reason(fmt.Sprint(n, strings.Repeat("r", 63))))))
		}
		check(t, 0, runs)
	}
	if len(runs) < 5 {
		t.Errorf("only %d runs are kept", len(runs))
	}
}

func TestCreatedBy(t *testing.T) {
	entry := func(manager, subresource, fields string, second int) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, Subresource: subresource, Time: at(second), FieldsV1: metav1.NewFieldsV1(fields)}
	}
	o := &metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{
		entry("helm", "", `{"f:spec":{"f:version":{}}}`, 1), entry("argocd-controller", "", `{"f:spec":{"f:version":{}}}`, 3),
		entry("kubectl-label", "", `{"f:metadata":{}}`, 4), entry("moult", "status", `{"f:status":{}}`, 5), entry("kubectl", "", `{"f:spec":{}}`, 2),
	}}
	for range 2 { // The cache trims an object again.
		if by := history.CreatedBy(o); by != "argocd-controller" {
			t.Errorf("got %q", by)
		}
		o.ManagedFields = history.LastManager(o.ManagedFields)
		if len(o.ManagedFields) != 1 || o.ManagedFields[0].FieldsV1 != nil {
			t.Errorf("got %v", o.ManagedFields)
		}
	}
	if by := history.CreatedBy(&metav1.ObjectMeta{}); by != "" {
		t.Errorf("got %q", by)
	}
}
