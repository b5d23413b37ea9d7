// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"encoding/json"
	"maps"
	"strconv"
	"strings"
	"time"

	"moult.dev/moult/api/v1alpha1"
)

// maxError bounds AnnotationHostError, in bytes.
const maxError = 1024

// change is what the agent writes on its Node: annotation values by key. Nil removes a key. The key Update is also written as a label.
type change map[string]*string

// set writes an annotation; an empty value removes it.
func (c change) set(key, value string) {
	c[key] = nil
	if value != "" {
		c[key] = &value
	}
}

// acknowledgement returns the change that acknowledges the wanted action.
func (s *nodeState) acknowledgement(boot string) change {
	c := change{}
	c.set(s.protocol.Active, string(s.wanted))
	c.set(s.protocol.State, string(v1alpha1.HostStateBusy))
	switch s.wanted {
	case v1alpha1.HostActionPrepare:
		c.set(v1alpha1.AnnotationHostAttempts, strconv.Itoa(s.attempts+1))
	case v1alpha1.HostActionReboot:
		// The boot id of the order shows whether the host has rebooted since, so it does not reboot twice.
		c.set(v1alpha1.AnnotationHostBoot, cmp.Or(s.orderedIn, boot))
	}
	return c
}

// report returns the change that reports that an action, or a periodic check without one, has ended, and why it failed.
func (s *nodeState) report(action v1alpha1.HostAction, state v1alpha1.HostState, why string) change {
	c := change{}
	c.set(s.protocol.Active, string(cmp.Or(action, s.active)))
	c.set(s.protocol.State, string(state))
	c.set(v1alpha1.AnnotationHostError, shorten(why))
	return c
}

// success returns the change that reports an action or a periodic check as done, with its findings. It is empty if the Node shows them already.
func (s *nodeState) success(action v1alpha1.HostAction, o outcome, now time.Time) change {
	c := s.report(action, v1alpha1.HostStateReady, "")
	c.set(v1alpha1.AnnotationHostBoot, "")
	if action == v1alpha1.HostActionReboot || o.offer != nil {
		c.set(v1alpha1.AnnotationHostVersion, o.runs)
		if s.runs != "" && s.runs != o.runs {
			c.set(v1alpha1.AnnotationHostPrevious, s.runs)
		}
	}
	if o.offer != nil {
		c.set(s.protocol.Update, strconv.FormatBool(o.offer.Available))
		c.set(v1alpha1.AnnotationHostTarget, o.offer.Version)
	}
	if action == v1alpha1.HostActionReboot || o.offer != nil && (!o.offer.Available || o.offer.Version != s.target) {
		c.set(v1alpha1.AnnotationHostAttempts, "")
	}
	c = s.missing(c)
	if o.offer != nil && len(c) > 0 {
		c.set(v1alpha1.AnnotationHostChecked, now.UTC().Format(time.RFC3339))
	}
	return c
}

// missing returns the part of a change that is not on the Node yet.
func (s *nodeState) missing(c change) change {
	left := maps.Clone(c)
	maps.DeleteFunc(left, func(key string, value *string) bool {
		is, ok := s.meta.Annotations[key]
		if value == nil {
			return !ok
		}
		return ok && is == *value && (key != s.protocol.Update || s.meta.Labels[key] == *value)
	})
	return left
}

// patch returns the change as a JSON merge patch of the Node, on condition that the Node has not changed since it was read.
func (s *nodeState) patch(c change) []byte {
	metadata := map[string]any{"resourceVersion": s.meta.ResourceVersion, "annotations": c}
	if update := c[s.protocol.Update]; update != nil {
		metadata["labels"] = change{s.protocol.Update: update}
	}
	body, _ := json.Marshal(map[string]any{"metadata": metadata}) // Maps of strings can always be encoded.
	return body
}

// shorten returns a text that fits into AnnotationHostError.
func shorten(text string) string {
	const more = " …"
	text = strings.ToValidUTF8(text, "?")
	if len(text) > maxError {
		text = strings.ToValidUTF8(text[:maxError-len(more)], "") + more
	}
	return text
}
