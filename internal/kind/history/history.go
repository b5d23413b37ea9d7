// SPDX-License-Identifier: Apache-2.0

// Package history keeps the last runs of a rollout, in its status.
//
//	new revision, and a node is outdated ──▶ run ─┬▶ Complete     all counted nodes are updated
//	                                              └▶ Superseded   another revision came first
//
// Next derives the runs from the stored ones and from what a pass observed. A pass whose status is not written leaves no trace, and the next pass
// derives the same.
package history

import (
	"bytes"
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/rollout"
)

// Limits of a history, besides v1alpha1.MaxRuns: MaxSize in bytes of JSON, maxListed a count, the others in bytes of text.
const (
	MaxSize        = 16 << 10
	maxListed      = 5 // Failures, and waits.
	maxRevision    = 256
	maxNameOfField = 128
)

// Observation is what a pass knows about a rollout.
type Observation struct {
	// Revision is the target; empty while it is unknown.
	Revision string
	// CreatedBy is as in v1alpha1.Run.
	CreatedBy string
	// Wave and Approval are those of the status.
	Wave     *v1alpha1.WaveStatus
	Approval *v1alpha1.WaveApproval
	Counts   v1alpha1.UnitCounts
	// Complete is true when all counted nodes are updated.
	Complete bool
	// Paused and Halted hold now.
	Paused, Halted bool
	// Wait is why the first unit in line waits.
	Wait v1alpha1.Reason
	// Failed counts the nodes that are failed now, by reason.
	Failed map[v1alpha1.Reason]int32
	// Took is how long turns took that ended well and are in no stored run.
	Took []time.Duration
}

// Next returns the runs after an observation, the newest first. Without Took, the same observation again changes nothing. Time alone changes
// nothing either.
func Next(before []v1alpha1.Run, o Observation, now time.Time) []v1alpha1.Run {
	o.Revision = cut(o.Revision, maxRevision)
	if o.Revision == "" {
		return before
	}
	at := metav1.Time{Time: now.UTC().Truncate(time.Second)}
	runs := slices.Clone(before)
	if len(runs) > 0 {
		before[0].DeepCopyInto(&runs[0]) // The others do not change.
		if runs[0].EndedAt == nil && runs[0].Revision != o.Revision {
			end(&runs[0], v1alpha1.RunSuperseded, at)
		}
	}
	// A node that comes later begins no run, unless a person must know of it.
	again := len(runs) > 0 && runs[0].EndedAt != nil && !o.Complete && (o.Halted || o.Counts.Failed > 0)
	if again || len(runs) == 0 || runs[0].Revision != o.Revision || runs[0].Result == v1alpha1.RunSuperseded {
		if c := &o.Counts; o.Complete || c.Waiting+c.Updating+c.Failed == 0 {
			return runs
		}
		runs = slices.Insert(runs, 0, v1alpha1.Run{Revision: o.Revision, CreatedBy: cut(o.CreatedBy, maxNameOfField), CreatedAt: at})
	}
	r := &runs[0]
	r.Total, r.Updated = o.Counts.Total, o.Counts.Updated
	if r.EndedAt == nil {
		AddTurns(runs, o.Took...)
		advance(r, &o, at)
	}
	for len(runs) > 1 && (len(runs) > v1alpha1.MaxRuns || size(runs) > MaxSize) {
		runs = runs[:len(runs)-1]
	}
	return runs
}

// advance updates a run that goes on.
func advance(r *v1alpha1.Run, o *Observation, at metav1.Time) {
	if a := o.Approval; a != nil && o.Wave != nil && strings.HasSuffix(a.Of, rollout.ApprovalOf("", o.Wave.Revision, o.Wave.Template)) {
		r.ApprovedBy = a.By
	}
	if r.StartedAt == nil && (o.Counts.Updating > 0 || o.Counts.Failed > 0 || len(o.Took) > 0) {
		r.StartedAt = &at
	}
	before := r.Ongoing
	r.Ongoing = nil
	note := func(state v1alpha1.RunState, holds bool, since **metav1.Time) {
		if holds && !slices.Contains(before, state) {
			*since = &at
		}
		if holds {
			r.Ongoing = append(r.Ongoing, state)
		}
	}
	note(v1alpha1.RunPaused, o.Paused, &r.PausedAt)
	note(v1alpha1.RunAwaitsApproval, o.Wave != nil && o.Wave.State == v1alpha1.WaveWaitingForApproval, &r.ApprovalAt)
	note(v1alpha1.RunFailed, o.Counts.Failed > 0, &r.FailedAt)
	note(v1alpha1.RunHalted, o.Halted, &r.HaltedAt)
	countFailures(r, o.Failed)
	if o.Counts.Updating > 0 {
		o.Wait = ""
	}
	waitsFor(r, o.Wait, at)
	if o.Complete {
		end(r, v1alpha1.RunComplete, at)
	}
}

// end ends a run.
func end(r *v1alpha1.Run, result v1alpha1.RunResult, at metav1.Time) {
	waitsFor(r, "", at)
	r.EndedAt, r.Result, r.Ongoing = &at, result, nil
	if r.Turns != nil {
		r.Turns.Buckets = nil
	}
}

// countFailures keeps, for each reason, the most nodes that were failed at the same time. So it counts no node twice, also after a restart of the
// operator. A node that fails again after a retry is not counted again.
func countFailures(r *v1alpha1.Run, failed map[v1alpha1.Reason]int32) {
	for reason, n := range failed {
		i := slices.IndexFunc(r.Failures, func(f v1alpha1.RunFailure) bool { return f.Reason == reason })
		if i < 0 {
			i, r.Failures = len(r.Failures), append(r.Failures, v1alpha1.RunFailure{Reason: reason})
		}
		r.Failures[i].Nodes = max(r.Failures[i].Nodes, n)
	}
	slices.SortFunc(r.Failures, func(a, b v1alpha1.RunFailure) int {
		return cmp.Or(cmp.Compare(b.Nodes, a.Nodes), cmp.Compare(a.Reason, b.Reason))
	})
	r.Failures = r.Failures[:min(len(r.Failures), maxListed)]
}

// waitsFor begins a wait, if the reason is another than that of the wait that went on. It adds the time of that one.
func waitsFor(r *v1alpha1.Run, reason v1alpha1.Reason, at metav1.Time) {
	was := r.Waiting
	if was == nil {
		was = &v1alpha1.RunWaiting{Since: at}
	}
	if was.Reason == reason {
		return
	}
	r.Waiting = nil
	if reason != "" {
		r.Waiting = &v1alpha1.RunWaiting{Reason: reason, Since: at}
	}
	seconds := int64(at.Sub(was.Since.Time) / time.Second)
	if seconds <= 0 {
		return
	}
	i := slices.IndexFunc(r.Waits, func(w v1alpha1.RunWait) bool { return w.Reason == was.Reason })
	if i < 0 {
		i, r.Waits = len(r.Waits), append(r.Waits, v1alpha1.RunWait{Reason: was.Reason})
	}
	r.Waits[i].Seconds += seconds
	slices.SortFunc(r.Waits, func(a, b v1alpha1.RunWait) int {
		return cmp.Or(cmp.Compare(b.Seconds, a.Seconds), cmp.Compare(a.Reason, b.Reason))
	})
	r.Waits = r.Waits[:min(len(r.Waits), maxListed)]
}

// CreatedBy returns the client that wrote the spec last, or "".
func CreatedBy(o metav1.Object) string {
	for _, e := range LastManager(o.GetManagedFields()) {
		return e.Manager
	}
	return ""
}

// LastManager returns the entry of the client that wrote the spec last, without the fields. It is empty if there is none.
func LastManager(all []metav1.ManagedFieldsEntry) (last []metav1.ManagedFieldsEntry) {
	for _, e := range all {
		wroteSpec := e.FieldsV1 == nil && len(all) == 1 || e.FieldsV1 != nil && bytes.Contains(e.FieldsV1.GetRawBytes(), []byte(`"f:spec"`))
		if wroteSpec && e.Subresource == "" && (len(last) == 0 || last[0].Time.Before(e.Time)) {
			e.FieldsV1 = nil
			last = []metav1.ManagedFieldsEntry{e}
		}
	}
	return last
}

func size(runs []v1alpha1.Run) int {
	text, _ := json.Marshal(runs) // Runs always marshal.
	return len(text)
}

// cut shortens text to n bytes.
func cut(text string, n int) string { return strings.ToValidUTF8(text[:min(len(text), n)], "") }

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
