// SPDX-License-Identifier: Apache-2.0

package notification

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"moult.dev/moult/api/v1alpha1"
)

var began = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func at(minutes int) *metav1.Time {
	return &metav1.Time{Time: began.Add(time.Duration(minutes) * time.Minute)}
}

// run is a run that was created at a minute.
func run(revision string, created int, change ...func(*v1alpha1.Run)) v1alpha1.Run {
	r := v1alpha1.Run{Revision: revision, CreatedAt: *at(created), Total: 3, Updated: 1}
	for _, f := range change {
		f(&r)
	}
	return r
}

func started(m int) func(*v1alpha1.Run) { return func(r *v1alpha1.Run) { r.StartedAt = at(m) } }
func approval(m int) func(*v1alpha1.Run) {
	return func(r *v1alpha1.Run) { r.ApprovalAt = at(m) }
}

func failed(m int) func(*v1alpha1.Run) {
	return func(r *v1alpha1.Run) {
		r.FailedAt, r.Failures = at(m), []v1alpha1.RunFailure{{Reason: v1alpha1.ReasonDrainTimeout, Nodes: 2}, {Reason: v1alpha1.ReasonJobFailed, Nodes: 1}}
	}
}

func halted(m int) func(*v1alpha1.Run) { return func(r *v1alpha1.Run) { r.HaltedAt = at(m) } }

func ended(m int, result v1alpha1.RunResult) func(*v1alpha1.Run) {
	return func(r *v1alpha1.Run) { r.EndedAt, r.Result = at(m), result }
}

func rollout(runs ...v1alpha1.Run) Rollout {
	return Rollout{Kind: "Plan", Namespace: "system-upgrade", Name: "k3s", UID: "uid", History: runs}
}

// names says which notifications these are.
func names(all []Notification) string {
	var text []string
	for i := range all {
		text = append(text, fmt.Sprintf("%s %s@%d", all[i].Run.Revision, all[i].Event, int(all[i].Time.Sub(began).Minutes())))
	}
	return strings.Join(text, ", ")
}

func all(*Notification) bool { return true }

// pending are all notifications of a history.
func pending(runs ...v1alpha1.Run) []Notification {
	due, _ := Due([]Rollout{rollout(runs...)}, nil, false, all)
	return due
}

func ids(all []Notification) []string {
	ids := []string{}
	for i := range all {
		ids = append(ids, all[i].ID)
	}
	return ids
}

func TestDue(t *testing.T) {
	for name, test := range map[string]struct {
		isNew bool
		sent  []v1alpha1.Run // a state of the history that was sent
		runs  []v1alpha1.Run
		want  string
	}{
		"no history":       {},
		"not started":      {runs: []v1alpha1.Run{run("a", 0)}},
		"all events":       {runs: []v1alpha1.Run{run("a", 0, started(1), halted(3), failed(2), approval(4), ended(5, v1alpha1.RunComplete))}, want: "a Started@1, a Failed@2, a Halted@3, a WaitsForApproval@4, a Done@5"},
		"superseded":       {runs: []v1alpha1.Run{run("a", 0, started(1), ended(2, v1alpha1.RunSuperseded))}, want: "a Started@1"},
		"oldest first":     {runs: []v1alpha1.Run{run("b", 5, started(6)), run("a", 0, started(1))}, want: "a Started@1, b Started@6"},
		"done comes last":  {runs: []v1alpha1.Run{run("a", 0, started(9), ended(5, v1alpha1.RunComplete))}, want: "a Started@9, a Done@5"},
		"sent":             {sent: []v1alpha1.Run{run("a", 0, started(1))}, runs: []v1alpha1.Run{run("a", 0, started(1), ended(2, v1alpha1.RunComplete))}, want: "a Done@2"},
		"again, later":     {sent: []v1alpha1.Run{run("a", 0, halted(1))}, runs: []v1alpha1.Run{run("a", 0, halted(7))}, want: "a Halted@7"},
		"the same again":   {sent: []v1alpha1.Run{run("a", 0, started(1))}, runs: []v1alpha1.Run{run("a", 5, started(6)), run("a", 0, started(1))}, want: "a Started@6"},
		"over before":      {isNew: true, runs: []v1alpha1.Run{run("b", 5, started(6)), run("a", 0, started(1), ended(2, v1alpha1.RunComplete))}, want: "b Started@6"},
		"counts say no id": {sent: []v1alpha1.Run{run("a", 0, started(1))}, runs: []v1alpha1.Run{run("a", 0, started(1), func(r *v1alpha1.Run) { r.Updated = 2 })}},
	} {
		t.Run(name, func(t *testing.T) {
			sent := ids(pending(test.sent...))
			due, _ := Due([]Rollout{rollout(test.runs...)}, sent, test.isNew, all)
			if got := names(due); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

// Whatever is sent between two restarts, each notification is sent at least once, and none that was recorded again.
func TestRestarts(t *testing.T) {
	history := []v1alpha1.Run{}
	recorded, sent := []string{}, map[string]int{}
	steps := []func(){
		func() { history = append(history, run("a", 0)) },
		func() { started(1)(&history[0]) },
		func() { approval(2)(&history[0]) },
		func() { approval(3)(&history[0]) },
		func() { ended(4, v1alpha1.RunComplete)(&history[0]) },
		func() { history = append([]v1alpha1.Run{run("b", 5, started(6))}, history...) },
		func() { ended(7, v1alpha1.RunSuperseded)(&history[0]) },
	}
	for i, step := range steps {
		step()
		due, kept := Due([]Rollout{rollout(history...)}, recorded, false, all)
		for _, n := range due {
			sent[names([]Notification{n})]++
		}
		if i%3 == 2 {
			continue // It is killed before it records.
		}
		recorded = append(kept, ids(due)...)
	}
	// The approval of minute 2 was sent, was not recorded, and has a later one in its place.
	want := map[string]int{"a Started@1": 1, "a WaitsForApproval@2": 1, "a WaitsForApproval@3": 1, "a Done@4": 1, "b Started@6": 2}
	if diff := cmp.Diff(want, sent); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// The record is bounded: what is no longer in a history is forgotten.
func TestForget(t *testing.T) {
	sent := ids(pending(run("a", 0, started(1), halted(2))))
	_, kept := Due([]Rollout{rollout(run("a", 0, started(1)))}, sent, false, all)
	if diff := cmp.Diff(sent[:1], kept); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if _, kept := Due(nil, sent, false, all); len(kept) != 0 {
		t.Error(kept)
	}
}

// What a webhook does not choose counts as sent, so that it does not come if it is chosen later.
func TestChosen(t *testing.T) {
	history := []Rollout{rollout(run("a", 0, started(1), halted(2)))}
	due, kept := Due(history, nil, false, func(n *Notification) bool { return n.Event == Halted })
	if got := names(due); got != "a Halted@2" {
		t.Error(got)
	}
	if due, _ := Due(history, kept, false, all); names(due) != "a Halted@2" {
		t.Error(names(due))
	}
}

func TestCloudEvent(t *testing.T) {
	n := pending(run("v1.33", 0, failed(2)))[0]
	got, err := json.MarshalIndent(n.CloudEvent("0d4c"), "", " ")
	if err != nil {
		t.Fatal(err)
	}
	want := `{
 "specversion": "1.0",
 "id": "` + n.ID + `",
 "source": "urn:uuid:0d4c",
 "type": "dev.moult.rollout.failed",
 "subject": "Plan/system-upgrade/k3s",
 "time": "2026-11-20T12:02:00Z",
 "datacontenttype": "application/json",
 "data": {
  "kind": "Plan",
  "namespace": "system-upgrade",
  "name": "k3s",
  "revision": "v1.33",
  "counts": {
   "total": 3,
   "updated": 1,
   "failed": 3
  },
  "reason": "DrainTimeout",
  "message": "Plan/system-upgrade/k3s has failed on a node: revision v1.33, 1 of 3 nodes updated, failures: 3, reason DrainTimeout."
 }
}`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// What Slack would read as a link or a mention is text.
func TestSlack(t *testing.T) {
	due, _ := Due([]Rollout{{Kind: "NodeRollout", Name: "r", History: []v1alpha1.Run{run("<!channel>&", 0, started(1))}}}, nil, false, all)
	want := "NodeRollout/r has started: revision &lt;!channel&gt;&amp;, 1 of 3 nodes updated."
	if got := due[0].Slack()["text"]; got != want {
		t.Errorf("got %s", got)
	}
	test := Notification{Event: Test}
	if got := test.CloudEvent("c"); got.Type != "dev.moult.rollout.test" || got.Subject != "" || got.Data.Message == "" {
		t.Errorf("%+v", got)
	}
}
