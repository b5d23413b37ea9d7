// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// scripted is a driver whose answers a test gives.
type scripted struct {
	kept *Memory
	err  error
	done bool
	sent int
}

type scriptedMemory struct {
	Memory
	Note string `json:"note"`
}

func (*scripted) Describe(context.Context) (Set, error)       { return Set{}, nil }
func (*scripted) Machines(context.Context) ([]Machine, error) { return nil, nil }

func (s *scripted) Plan(_ context.Context, _ *Set, m *scriptedMemory) error {
	m.Note = strings.Repeat("x", len(m.Image))
	return s.err
}

func (s *scripted) Submit(context.Context, *scriptedMemory) error {
	s.sent++
	return s.err
}

func (s *scripted) Follow(_ context.Context, m *scriptedMemory) (bool, error) {
	if s.kept != nil {
		m.Kind, m.Failure, m.Added = s.kept.Kind, s.kept.Failure, s.kept.Added
	}
	return s.done, s.err
}

func TestPrepare(t *testing.T) {
	t.Parallel()
	set := Set{Name: "workers", Capacity: 3, Min: 2, Max: 4}
	unfit := Set{Name: "workers", Capacity: 3, Unfit: "it replaces machines by itself"}
	for name, tc := range map[string]struct {
		change Change
		set    Set
		want   Kind
	}{
		"add":                    {Change{Token: "t", Add: 1}, set, ""},
		"above the maximum":      {Change{Token: "t", Add: 2}, set, KindFull},
		"delete":                 {Change{Token: "t", Delete: []string{"a", "a"}}, set, ""},
		"below the minimum":      {Change{Token: "t", Delete: []string{"a", "b"}}, set, KindInvalid},
		"no token":               {Change{Add: 1}, set, KindInvalid},
		"nothing":                {Change{Token: "t"}, set, KindInvalid},
		"two changes":            {Change{Token: "t", Add: 1, Image: "i"}, set, KindInvalid},
		"too many":               {Change{Token: "t", Add: 101}, Set{}, KindInvalid},
		"add to an unfit set":    {Change{Token: "t", Add: 1}, unfit, KindInvalid},
		"delete in an unfit set": {Change{Token: "t", Delete: []string{"a"}}, unfit, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := NewScaleSet(&scripted{}).Prepare(t.Context(), &tc.set, tc.change); KindOf(err) != tc.want {
				t.Errorf("%v, want %q", err, tc.want)
			}
		})
	}
}

func TestSendOnce(t *testing.T) {
	t.Parallel()
	d := &scripted{}
	s := NewScaleSet(d)
	o, err := s.Prepare(t.Context(), &Set{}, Change{Token: "t", Add: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, p, err := s.Poll(t.Context(), o); err != nil || p.Done {
		t.Errorf("before it is sent: %+v, %v", p, err)
	}
	d.err = Errorf(KindThrottled, "slowly")
	if same, err := s.Send(t.Context(), o); KindOf(err) != KindThrottled || same != o {
		t.Errorf("%+v, %v", same, err)
	}
	d.err = nil
	for range 2 {
		if o, err = s.Send(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	if d.sent != 2 {
		t.Errorf("submitted %d times, want once after the error", d.sent)
	}
}

// No error of a request ends an operation, and a failure that is kept does.
func TestPollEnds(t *testing.T) {
	t.Parallel()
	sent := Operation{Token: "t", State: `{"add":1,"sent":true}`}
	for _, kind := range []Kind{KindNotFound, KindConflict, KindThrottled, KindQuota, KindFull, KindDenied, KindInvalid, KindFailed, KindUnavailable} {
		d := &scripted{err: &Error{Kind: kind, RetryAfter: time.Second, Err: errors.New("x")}}
		_, _, err := NewScaleSet(d).Poll(t.Context(), sent)
		if KindOf(err).ends() || RetryAfter(err) != time.Second {
			t.Errorf("%s became %s, after %s", kind, KindOf(err), RetryAfter(err))
		}
		kept := &Memory{Added: []string{"a"}}
		kept.Fail(kind, "no room\n"+strings.Repeat("é", maxText))
		_, p, err := NewScaleSet(&scripted{kept: kept, done: true}).Poll(t.Context(), sent)
		if !KindOf(err).ends() || kind.ends() && KindOf(err) != kind || p.Done || len(p.Added) != 1 {
			t.Errorf("%s became %s, %+v", kind, KindOf(err), p)
		}
		if strings.Contains(err.Error(), "\n") || len(err.Error()) > maxText+3 || !utf8.ValidString(err.Error()) {
			t.Errorf("%q", err)
		}
	}
}

func TestStateThatCantBeRead(t *testing.T) {
	t.Parallel()
	s := NewScaleSet(&scripted{})
	for _, o := range []Operation{{}, {Token: "t", State: "{"}, {Token: "t", State: "{}"}, {Token: "t", State: `{"sent":true}`}, {State: `{"add":1}`}} {
		_, sendErr := s.Send(t.Context(), o)
		_, _, pollErr := s.Poll(t.Context(), o)
		if KindOf(sendErr) != KindInvalid || KindOf(pollErr) != KindInvalid {
			t.Errorf("%+v: %v, %v", o, sendErr, pollErr)
		}
	}
}
