// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/json"
	"maps"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/agent/host"
)

// maxError is how long AnnotationHostError may be, in bytes.
const maxError = 1024

// words are what the agent writes on its Node. Nil takes a key off.
type words struct {
	annotations, labels map[string]*string
}

func newWords() words { return words{map[string]*string{}, map[string]*string{}} }

// set writes an annotation; an empty value takes it off.
func (w words) set(key, value string) {
	if value == "" {
		w.annotations[key] = nil
		return
	}
	w.annotations[key] = &value
}

// taken says that what is wanted is taken up, in this boot.
func (s *said) taken(boot string) words {
	w := newWords()
	w.set(s.protocol.Active, string(s.wanted))
	w.set(s.protocol.State, string(v1alpha1.HostStateBusy))
	switch s.wanted {
	case v1alpha1.HostActionPrepare:
		w.set(v1alpha1.AnnotationHostAttempts, strconv.Itoa(s.tries+1))
	case v1alpha1.HostActionReboot:
		// A host that has rebooted between the order and now needs no second reboot.
		if s.orderedIn != "" {
			boot = s.orderedIn
		}
		w.set(v1alpha1.AnnotationHostBoot, boot)
	}
	return w
}

// finding is what was found out about a host.
type finding struct {
	// runs is what it runs; empty where versions have no name.
	runs  string
	offer host.Offer
}

// succeeded says that the action which was taken up is done, with what it found out, if anything.
func (s *said) succeeded(f *finding, now time.Time) words {
	w := newWords()
	switch {
	case looks(s.active):
		s.found(w, f)
		w.set(v1alpha1.AnnotationHostChecked, now.UTC().Format(time.RFC3339))
		w.set(v1alpha1.AnnotationHostBoot, "")
	case s.active == v1alpha1.HostActionReboot:
		s.changed(w, f.runs)
		w.set(v1alpha1.AnnotationHostAttempts, "")
		w.set(v1alpha1.AnnotationHostBoot, "")
	}
	w.set(s.protocol.State, string(v1alpha1.HostStateReady))
	w.set(v1alpha1.AnnotationHostError, "")
	return w
}

// checked says what a check that nobody asked for found out; nothing if that is known.
func (s *said) checked(f *finding, now time.Time) words {
	w := newWords()
	s.found(w, f)
	w.set(s.protocol.State, string(v1alpha1.HostStateReady))
	w.set(v1alpha1.AnnotationHostError, "")
	if w = s.unsaid(w); !w.empty() {
		w.set(v1alpha1.AnnotationHostChecked, now.UTC().Format(time.RFC3339))
	}
	return w
}

// failed says that what was taken up, or a check that nobody asked for, has failed.
func (s *said) failed(err error) words {
	w := newWords()
	w.set(s.protocol.State, string(v1alpha1.HostStateError))
	w.set(v1alpha1.AnnotationHostError, cut(err.Error()))
	return w
}

// found says what a host runs and offers.
func (s *said) found(w words, f *finding) {
	s.changed(w, f.runs)
	update, target := v1alpha1.HostUpdateFalse, ""
	if f.offer.Available {
		update, target = v1alpha1.HostUpdateTrue, f.offer.Version
	}
	w.set(s.protocol.Update, update)
	w.labels[s.protocol.Update] = &update
	w.set(v1alpha1.AnnotationHostTarget, target)
	if !f.offer.Available || target != s.target {
		w.set(v1alpha1.AnnotationHostAttempts, "")
	}
}

// changed says what a host runs, and if that is another version than before, what it ran.
func (s *said) changed(w words, runs string) {
	w.set(v1alpha1.AnnotationHostVersion, runs)
	if s.runs != "" && s.runs != runs {
		w.set(v1alpha1.AnnotationHostPrevious, s.runs)
	}
}

// unsaid leaves of the words those that are not on the Node.
func (s *said) unsaid(w words) words {
	left := words{maps.Clone(w.annotations), maps.Clone(w.labels)}
	there := func(on map[string]string) func(string, *string) bool {
		return func(key string, value *string) bool {
			is, ok := on[key]
			return value == nil && !ok || value != nil && ok && is == *value
		}
	}
	maps.DeleteFunc(left.annotations, there(s.meta.Annotations))
	maps.DeleteFunc(left.labels, there(s.meta.Labels))
	return left
}

func (w words) empty() bool { return len(w.annotations) == 0 && len(w.labels) == 0 }

// patch is the words as a JSON merge patch for the Node as it was read.
func (s *said) patch(w words) ([]byte, error) {
	type metadata struct {
		ResourceVersion string             `json:"resourceVersion"`
		Annotations     map[string]*string `json:"annotations,omitempty"`
		Labels          map[string]*string `json:"labels,omitempty"`
	}
	return json.Marshal(struct {
		Metadata metadata `json:"metadata"`
	}{metadata{s.meta.ResourceVersion, w.annotations, w.labels}})
}

// cut is a text that fits into AnnotationHostError, and is not empty.
func cut(text string) string {
	text = strings.ToValidUTF8(strings.TrimSpace(text), "?")
	if text == "" {
		return "no reason is given"
	}
	if len(text) <= maxError {
		return text
	}
	const more = " …"
	end := maxError - len(more)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + more
}
