// SPDX-License-Identifier: Apache-2.0

package notification

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"path"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"moult.dev/moult/api/v1alpha1"
)

// Event is what a notification is about.
type Event string

// The events of a run, in the order in which those of one second are sent.
const (
	Started          Event = "Started"
	WaitsForApproval Event = "WaitsForApproval"
	Failed           Event = "Failed"
	Halted           Event = "Halted"
	Done             Event = "Done"
	// Test is the event of a test. No run has it.
	Test Event = "Test"
)

// Events are those that a webhook may choose.
var Events = []Event{Started, WaitsForApproval, Failed, Halted, Done}

// Rollout is a rollout with its history.
type Rollout struct {
	Kind, Namespace, Name string
	UID                   types.UID
	History               []v1alpha1.Run
}

// Subject names the rollout.
func (r *Rollout) Subject() string { return path.Join(r.Kind, r.Namespace, r.Name) }

// Notification is one event of one run.
type Notification struct {
	// ID identifies it by the rollout's UID, the run, the event and its time.
	ID      string
	Event   Event
	Time    time.Time
	Rollout *Rollout
	Run     *v1alpha1.Run
}

// Due returns the notifications that a webhook chooses and that were not sent, first those of the oldest run of a rollout. kept are the IDs of all
// others: what no history has any more is forgotten. To a new webhook, the notifications of runs that are over count as sent.
func Due(rollouts []Rollout, sent []string, isNew bool, chooses func(*Notification) bool) (due []Notification, kept []string) {
	known := sets.New(sent...)
	for i := range rollouts {
		r := &rollouts[i]
		for j := range slices.Backward(r.History) {
			for _, n := range ofRun(r, &r.History[j]) {
				if known.Has(n.ID) || isNew && n.Run.EndedAt != nil || !chooses(&n) {
					kept = append(kept, n.ID)
				} else {
					due = append(due, n)
				}
			}
		}
	}
	return due, kept
}

// ofRun returns the notifications of a run by their time. Started comes first and Done last, whatever the clocks of two operators say.
func ofRun(r *Rollout, run *v1alpha1.Run) (all []Notification) {
	add := func(event Event, at *metav1.Time) {
		if !at.IsZero() {
			hash := sha256.Sum256(fmt.Appendf(nil, "%s %d %q %s %d", r.UID, run.CreatedAt.Unix(), run.Revision, event, at.Unix()))
			all = append(all, Notification{base64.RawURLEncoding.EncodeToString(hash[:12]), event, at.UTC(), r, run})
		}
	}
	add(Started, run.StartedAt)
	first := len(all)
	add(WaitsForApproval, run.ApprovalAt)
	add(Failed, run.FailedAt)
	add(Halted, run.HaltedAt)
	slices.SortStableFunc(all[first:], func(a, b Notification) int { return a.Time.Compare(b.Time) })
	if run.Result == v1alpha1.RunComplete {
		add(Done, run.EndedAt)
	}
	return all
}
