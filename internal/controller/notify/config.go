// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"moult.dev/moult/internal/notification"
)

// keyConfig is the only key of the Secret.
const keyConfig = "config.yaml"

// maxWebhooks bounds the ConfigMap, and the requests.
const maxWebhooks = 10

// The formats of requests.
const (
	formatCloudEvents = "CloudEvents"
	formatSlack       = "Slack"
)

// kinds are those that run.
var kinds = []string{"Plan", "NodeRollout", "ExtendedDaemonSet"}

// webhook is where notifications are sent. Empty lists choose all.
type webhook struct {
	Name          string               `json:"name"`
	URL           string               `json:"url"`
	Format        string               `json:"format"`
	Authorization string               `json:"authorization"`
	Events        []notification.Event `json:"events"`
	Kinds         []string             `json:"kinds"`
	Namespaces    []string             `json:"namespaces"`
}

// chooses reports whether the webhook gets a notification. A NodeRollout has no namespace, so namespaces leave it out.
func (w *webhook) chooses(n *notification.Notification) bool {
	return isIn(w.Events, n.Event) && isIn(w.Kinds, n.Rollout.Kind) && isIn(w.Namespaces, n.Rollout.Namespace)
}

func isIn[T comparable](list []T, v T) bool { return len(list) == 0 || slices.Contains(list, v) }

// readConfig reads the data of the Secret. The error names the field and what is right. It never has a value that may be secret.
func readConfig(data map[string][]byte) ([]webhook, error) {
	text, found := data[keyConfig]
	if !found || len(data) > 1 {
		return nil, fmt.Errorf("the Secret must have the key %s and no other", keyConfig)
	}
	var c struct {
		Webhooks []webhook `json:"webhooks"`
	}
	if yaml.UnmarshalStrict(text, &c) != nil { // Its error may have a part of the text.
		return nil, fmt.Errorf("%s must be YAML: webhooks, a list of name, url, format, authorization and the lists events, kinds and namespaces, "+
			"and no other field", keyConfig)
	}
	if n := len(c.Webhooks); n == 0 || n > maxWebhooks {
		return nil, fmt.Errorf("%s: webhooks must have 1 to %d entries", keyConfig, maxWebhooks)
	}
	for i := range c.Webhooks {
		w := &c.Webhooks[i]
		isTaken := slices.ContainsFunc(c.Webhooks[:i], func(before webhook) bool { return before.Name == w.Name })
		if err := w.check(isTaken); err != nil {
			return nil, fmt.Errorf("%s: webhooks[%d].%w", keyConfig, i, err)
		}
	}
	return c.Webhooks, nil
}

func (w *webhook) check(taken bool) error {
	to, err := url.Parse(w.URL)
	switch {
	case len(validation.IsDNS1123Label(w.Name)) > 0:
		return errors.New("name must be lower-case letters, digits and hyphens, at most 63")
	case taken:
		return errors.New("name must be another than those of the webhooks before")
	case err != nil || to.Host == "" || to.User != nil || to.Scheme != "https" && (to.Scheme != "http" || w.Authorization != ""):
		return errors.New("url must be an https URL without user and password; without authorization it may be http")
	case w.Format != formatCloudEvents && w.Format != formatSlack:
		return fmt.Errorf("format must be %s or %s", formatCloudEvents, formatSlack)
	case strings.ContainsFunc(w.Authorization, unicode.IsControl):
		return errors.New("authorization must be the value of a header, in one line, such as Bearer TOKEN")
	}
	return errors.Join(checkAll("events", w.Events, notification.Events), checkAll("kinds", w.Kinds, kinds))
}

func checkAll[T ~string](field string, values, allowed []T) error {
	for i, v := range values {
		if !slices.Contains(allowed, v) {
			return fmt.Errorf("%s[%d] must be one of %v", field, i, allowed)
		}
	}
	return nil
}
