// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

// FuzzOperation finds a saved operation that is accepted and never ends, or can't be read again.
func FuzzOperation(f *testing.F) {
	for _, state := range []string{
		"", "null", "{}", `{"add":1}`, `{"add":101,"sent":true}`, `{"delete":["a"],"sent":true,"added":["b"],"note":"x"}`, `{"image":"i","sent":true,"failure":"f"}`,
		`{"add":1,"sent":true,"failure":"f","kind":"Throttled"}`, `{"add":-1}`, `{"add":1,"image":"i"}`,
	} {
		f.Add("t", state)
	}
	f.Fuzz(func(t *testing.T, token, state string) {
		s := NewScaleSet(&scripted{done: true})
		o, p, err := s.Poll(t.Context(), Operation{Token: token, State: state})
		if o.State == state && err != nil {
			return
		}
		if err != nil && (!KindOf(err).ends() || p.Done || len(err.Error()) > maxText+3) {
			t.Errorf("it ends with %s, done %t: %v", KindOf(err), p.Done, err)
		}
		again, q, err2 := s.Poll(t.Context(), o)
		if again != o || p.Done != q.Done || KindOf(err) != KindOf(err2) {
			t.Errorf("%+v, %+v, %v became %+v, %+v, %v", o, p, err, again, q, err2)
		}
	})
}

// FuzzAnswer finds answers of clouds that make requests wait for ever, or never.
func FuzzAnswer(f *testing.F) {
	f.Add(429, "5", "slow down")
	f.Add(500, "99999999999", "")
	f.Add(404, "-1", "a\nb")
	f.Add(200, "9223372036854775807", "x")
	f.Fuzz(func(t *testing.T, status int, after, text string) {
		err := FromAnswer("asking", status, http.Header{"Retry-After": {after}}, text, nil)
		if wait := RetryAfter(err); wait < 0 || wait > 24*time.Hour {
			t.Errorf("%q is %s", after, wait)
		}
		if KindOf(err) == "" {
			t.Error("it has no kind")
		}
		if line := OneLine(text); len(line) > maxText+3 || strings.ContainsAny(line, "\r\n") {
			t.Errorf("%q became %q", text, line)
		}
	})
}

// FuzzTagMax finds tags that set no limit and are not refused.
func FuzzTagMax(f *testing.F) {
	for _, tag := range []string{"5", " 5 ", "0", "-1", "", "x", "1e3", "99999999999999999999", "+7"} {
		f.Add(tag, 10)
	}
	f.Fuzz(func(t *testing.T, tag string, most int) {
		before := max(most, 0)
		s := Set{Max: before}
		s.LimitTo(tag)
		if s.Unfit == "" && s.Max < 1 || before > 0 && s.Max > before {
			t.Errorf("%q of %d: at most %d, %q", tag, before, s.Max, s.Unfit)
		}
	})
}

// FuzzEndpoint finds endpoints to which credentials would go in the clear.
func FuzzEndpoint(f *testing.F) {
	for _, text := range []string{"https://a.example", "http://localhost:80", "http://[::1]/x", "http://a", "https://", "//x", "http://127.0.0.1@a.example", "http:/x", "::"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		u, err := Endpoint(text)
		if err != nil {
			return
		}
		host := u.Hostname()
		if u.Host == "" || u.Scheme != "https" && host != "localhost" && !strings.HasPrefix(host, "127.") && !strings.Contains(host, ":") {
			t.Errorf("%q is %q", text, u)
		}
		if _, err := Endpoint(u.String()); err != nil {
			t.Errorf("%q is %q: %v", text, u, err)
		}
	})
}
