// SPDX-License-Identifier: Apache-2.0

// Package notification says which notifications about rollouts are due, and what they contain. It is pure.
//
//	history of rollouts ──▶ Due: one notification for each event that was not sent before ──▶ Slack, CloudEvent
//
// An event that comes again at another time is another notification. A notification has the same ID each time that it is computed.
package notification

// Name is that of the Secret with the configuration, and of the ConfigMap with what was sent. Both are in the operator's namespace.
const Name = "moult-notifications"

// The keys of the ConfigMap. The IDs that were sent to a webhook have its name after the prefix.
const (
	KeyTest      = "test"
	KeyOfWebhook = "webhook."
)

// TestResult is what a test has found.
type TestResult struct {
	// Of is the value of the annotation that asked for it.
	Of string `json:"of"`
	// Error says why nothing was sent.
	Error    string          `json:"error,omitempty"`
	Webhooks []WebhookResult `json:"webhooks,omitempty"`
}

// WebhookResult is how the test of one webhook ended: OK, or why it failed. It never has a URL.
type WebhookResult struct {
	Name   string `json:"name"`
	Result string `json:"result"`
}

// OK is the result of a webhook that answered well.
const OK = "ok"
