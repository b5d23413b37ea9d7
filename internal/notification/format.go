// SPDX-License-Identifier: Apache-2.0

package notification

import (
	"fmt"
	"strings"
	"time"

	"moult.dev/moult/api/v1alpha1"
)

// CloudEvent is a CloudEvent 1.0 in its JSON format.
type CloudEvent struct {
	SpecVersion     string    `json:"specversion"`
	ID              string    `json:"id"`
	Source          string    `json:"source"`
	Type            string    `json:"type"`
	Subject         string    `json:"subject,omitempty"`
	Time            time.Time `json:"time"`
	DataContentType string    `json:"datacontenttype"`
	Data            Data      `json:"data"`
}

// Data is what a CloudEvent says about a rollout.
type Data struct {
	Kind      string  `json:"kind,omitempty"`
	Namespace string  `json:"namespace,omitempty"`
	Name      string  `json:"name,omitempty"`
	Revision  string  `json:"revision,omitempty"`
	Counts    *Counts `json:"counts,omitempty"`
	Reason    string  `json:"reason,omitempty"`
	Message   string  `json:"message"`
}

// Counts are numbers of nodes.
type Counts struct {
	Total   int32 `json:"total"`
	Updated int32 `json:"updated"`
	Failed  int32 `json:"failed"`
}

// CloudEvent returns the notification as a CloudEvent of a cluster.
func (n *Notification) CloudEvent(cluster string) CloudEvent {
	e := CloudEvent{
		SpecVersion: "1.0", ID: n.ID, Source: "urn:uuid:" + cluster, Type: "dev.moult.rollout." + strings.ToLower(string(n.Event)),
		Time: n.Time, DataContentType: "application/json", Data: Data{Message: n.Message()},
	}
	if r, run := n.Rollout, n.Run; r != nil {
		e.Subject = r.Subject()
		e.Data.Kind, e.Data.Namespace, e.Data.Name, e.Data.Revision = r.Kind, r.Namespace, r.Name, run.Revision
		e.Data.Counts = &Counts{run.Total, run.Updated, failures(run)}
		e.Data.Reason = string(n.reason())
	}
	return e
}

// escape is what Slack asks for.
var escape = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

// Slack returns the notification as a message for Slack.
func (n *Notification) Slack() map[string]string {
	return map[string]string{"text": escape.Replace(n.Message())}
}

// Message is one sentence for people.
func (n *Notification) Message() string {
	if n.Event == Test {
		return "This is a test of Moult's notifications: no rollout has changed."
	}
	what := map[Event]string{
		Started: "has started", WaitsForApproval: "waits for approval", Failed: "has failed on a node",
		Halted: "has halted, and starts no more nodes until a person acts", Done: "is done",
	}[n.Event]
	text := fmt.Sprintf("%s %s: revision %s, %d of %d nodes updated", n.Rollout.Subject(), what, n.Run.Revision, n.Run.Updated, n.Run.Total)
	if failed := failures(n.Run); failed > 0 {
		text += fmt.Sprintf(", failures: %d", failed)
	}
	if reason := n.reason(); reason != "" {
		text += fmt.Sprintf(", reason %s", reason)
	}
	return text + "."
}

// reason is why nodes failed most often, for the events that are about failures.
func (n *Notification) reason() v1alpha1.Reason {
	if all := n.Run.Failures; len(all) > 0 && (n.Event == Failed || n.Event == Halted) {
		return all[0].Reason
	}
	return ""
}

func failures(run *v1alpha1.Run) (sum int32) {
	for _, f := range run.Failures {
		sum += f.Nodes
	}
	return sum
}
