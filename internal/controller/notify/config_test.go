// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"fmt"
	"strings"
	"testing"

	"moult.dev/moult/internal/notification"
)

const one = "webhooks: [{name: ops, url: 'https://hooks.example.com/secret', format: Slack"

// An error of the configuration names the field and what is right, and says nothing secret.
func TestConfigErrors(t *testing.T) {
	for text, want := range map[string]string{
		one + "}]": "",
		"webhooks: [{name: ops, url: 'http://receiver:8080/in', format: CloudEvents, events: [Done], kinds: [Plan], namespaces: [a]}]": "",
		"":                              "config.yaml: webhooks must have 1 to 10 entries",
		"webhooks: secret":              "config.yaml must be YAML: webhooks, a list of name",
		"secret: [":                     "config.yaml must be YAML",
		one + ", channel: '#x'}]":       "config.yaml must be YAML",
		one + ", 'https://secret': x}]": "config.yaml must be YAML",
		one + ", events: [Ended]}]":     "config.yaml: webhooks[0].events[0] must be one of [Started WaitsForApproval Failed Halted Done]",
		one + ", kinds: [Deployment]}]": "config.yaml: webhooks[0].kinds[0] must be one of [Plan NodeRollout ExtendedDaemonSet]",
		one + ", events: Done}]":        "config.yaml must be YAML",
		one + ", authorization: \"secret\\r\\nX: y\"}]":                                         "config.yaml: webhooks[0].authorization must be the value of a header",
		"webhooks: [{name: Ops, url: 'https://secret', format: Slack}]":                         "config.yaml: webhooks[0].name must be lower-case",
		"webhooks: [{name: ops, url: 'ftp://secret', format: Slack}]":                           "config.yaml: webhooks[0].url must be an https URL",
		"webhooks: [{name: ops, url: 'https://u:secret@host', format: Slack}]":                  "config.yaml: webhooks[0].url must be an https URL without user",
		"webhooks: [{name: ops, url: 'http://host', format: Slack, authorization: secret}]":     "config.yaml: webhooks[0].url must be an https URL",
		"webhooks: [{name: ops, url: 'https://secret', format: slack}]":                         "config.yaml: webhooks[0].format must be CloudEvents or Slack",
		one + "}, {name: ops, url: 'https://b', format: Slack}]":                                "config.yaml: webhooks[1].name must be another",
		"webhooks: [" + strings.Repeat("{name: a, url: 'https://b', format: Slack},", 11) + "]": "config.yaml: webhooks must have 1 to 10 entries",
	} {
		t.Run(text, func(t *testing.T) {
			_, err := readConfig(map[string][]byte{"config.yaml": []byte(text)})
			if got := fmt.Sprint(err); (err == nil) != (want == "") || err != nil && (!strings.HasPrefix(got, want) || strings.Contains(got, "secret")) {
				t.Errorf("got %v, want %q", err, want)
			}
		})
	}
	for _, data := range []map[string][]byte{{}, {"config.yaml": []byte(one + "}]"), "url": nil}} {
		if _, err := readConfig(data); err == nil {
			t.Errorf("no error for %v", data)
		}
	}
}

func TestChooses(t *testing.T) {
	in := func(kind, namespace string) *notification.Notification {
		return &notification.Notification{Event: notification.Done, Rollout: &notification.Rollout{Kind: kind, Namespace: namespace}}
	}
	for name, test := range map[string]struct {
		w    webhook
		n    *notification.Notification
		want bool
	}{
		"all":              {webhook{}, in("Plan", "a"), true},
		"the event":        {webhook{Events: []notification.Event{notification.Done}}, in("Plan", "a"), true},
		"another event":    {webhook{Events: []notification.Event{notification.Halted}}, in("Plan", "a"), false},
		"another kind":     {webhook{Kinds: []string{"NodeRollout"}}, in("Plan", "a"), false},
		"the namespace":    {webhook{Namespaces: []string{"a"}}, in("Plan", "a"), true},
		"no namespace":     {webhook{Namespaces: []string{"a"}}, in("NodeRollout", ""), false},
		"kind and another": {webhook{Kinds: []string{"Plan"}, Namespaces: []string{"b"}}, in("Plan", "a"), false},
	} {
		if got := test.w.chooses(test.n); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
