// SPDX-License-Identifier: Apache-2.0

package notification

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

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

// Notification is one event of one run.
type Notification struct {
	// ID identifies it by the rollout's UID, the run, the event and its time.
	ID      string
	Event   Event
	Time    time.Time
	Rollout *Rollout
	Run     *v1alpha1.Run
}

// Of returns the notifications of all runs, first those of the oldest run, and those of one run by their time.
func Of(rollouts []Rollout) (all []Notification) {
	for i := range rollouts {
		r := &rollouts[i]
		for j := range slices.Backward(r.History) {
			all = append(all, ofRun(r, &r.History[j])...)
		}
	}
	return all
}

func ofRun(r *Rollout, run *v1alpha1.Run) (all []Notification) {
	done := run.EndedAt
	if run.Result != v1alpha1.RunComplete {
		done = nil
	}
	for i, at := range []*metav1.Time{run.StartedAt, run.ApprovalAt, run.FailedAt, run.HaltedAt, done} {
		if at.IsZero() {
			continue
		}
		id := fmt.Sprintf("%s %d %q %s %d", r.UID, run.CreatedAt.Unix(), run.Revision, Events[i], at.Unix())
		hash := sha256.Sum256([]byte(id))
		all = append(all, Notification{base64.RawURLEncoding.EncodeToString(hash[:12]), Events[i], at.UTC(), r, run})
	}
	// Started comes first and Done last, whatever the clocks of two operators say.
	slices.SortStableFunc(all, func(a, b Notification) int {
		rank := func(n Notification) int {
			switch n.Event {
			case Started:
				return 0
			case Done:
				return 2
			default:
				return 1
			}
		}
		return cmp.Or(cmp.Compare(rank(a), rank(b)), a.Time.Compare(b.Time))
	})
	return all
}

// Memory is what is known of one webhook.
type Memory struct {
	// Since is when the operator first saw the webhook. Runs that ended before are not sent.
	Since metav1.Time `json:"since"`
	// Sent are the IDs of the notifications that were sent, or that the webhook does not choose.
	Sent []string `json:"sent,omitempty"`
}

// Due returns the notifications that were not sent, in order.
func (m *Memory) Due(all []Notification) (due []Notification) {
	sent := m.ids()
	for _, n := range all {
		if over := n.Run.EndedAt; !sent[n.ID] && (over.IsZero() || over.Unix() >= m.Since.Unix()) {
			due = append(due, n)
		}
	}
	return due
}

// Add remembers notifications as sent, and forgets those of which there is no run any more.
func (m *Memory) Add(all []Notification, sent ...Notification) {
	known := m.ids()
	for _, n := range sent {
		known[n.ID] = true
	}
	m.Sent = nil
	for _, n := range all {
		if known[n.ID] {
			m.Sent = append(m.Sent, n.ID)
		}
	}
}

func (m *Memory) ids() map[string]bool {
	ids := map[string]bool{}
	for _, id := range m.Sent {
		ids[id] = true
	}
	return ids
}

// Subject names the rollout.
func (r *Rollout) Subject() string {
	return strings.Join(slices.DeleteFunc([]string{r.Kind, r.Namespace, r.Name}, func(s string) bool { return s == "" }), "/")
}
