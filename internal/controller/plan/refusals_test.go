// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"errors"
	"testing"
	"time"

	"moult.dev/moult/internal/turn"
)

func TestRefusals(t *testing.T) {
	r := newRefusals()
	at := now
	if _, kept := r.get(uid, 3, at); kept {
		t.Error("keeps back a Plan that nobody has refused")
	}
	why := errors.New("exceeded quota")
	// Each refusal doubles the time, to a bound.
	for _, want := range []time.Duration{turn.FirstRetry, 2 * turn.FirstRetry, 4 * turn.FirstRetry} {
		r.add(uid, 3, why, at)
		r.add(uid, 3, why, at.Add(want-1)) // Another node's of the same attempt.
		last, kept := r.get(uid, 3, at.Add(want-1))
		if !kept || !last.until.Equal(at.Add(want)) || !errors.Is(last.why, why) {
			t.Errorf("keeps it back: %v, until %s, want %s; %v", kept, last.until, at.Add(want), last.why)
		}
		at = at.Add(want)
		if _, kept := r.get(uid, 3, at); kept {
			t.Errorf("keeps it back at %s, when it is due", at)
		}
	}
	for range 20 {
		r.add(uid, 3, why, at)
		last, _ := r.get(uid, 3, at)
		at = last.until
	}
	r.add(uid, 3, why, at)
	if last, kept := r.get(uid, 3, at); !kept || !last.until.Equal(at.Add(turn.LastRetry)) {
		t.Errorf("keeps it back until %s, want %s", last.until, at.Add(turn.LastRetry))
	}
	// A Plan that somebody has changed is tried at once, as is another one.
	if _, kept := r.get(uid, 4, at); kept {
		t.Error("keeps back a Plan that has changed")
	}
	if _, kept := r.get("other", 3, at); kept {
		t.Error("keeps back another Plan")
	}
	// A Job that is made starts it anew.
	r.forget(uid)
	r.forget("other")
	if _, kept := r.get(uid, 3, at); kept {
		t.Error("keeps back what was forgotten")
	}
	r.add(uid, 3, why, at)
	if last, kept := r.get(uid, 3, at); !kept || !last.until.Equal(at.Add(turn.FirstRetry)) {
		t.Errorf("keeps it back until %s, want %s", last.until, at.Add(turn.FirstRetry))
	}
}
