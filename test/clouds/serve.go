// SPDX-License-Identifier: Apache-2.0

package clouds

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Call is something that a World was asked for, or that happened in it.
type Call struct {
	Time time.Time
	// Name of it: that of Serve's double; or Add, Delete, Heal, Kill, Edit, and Start and Stop where Hosts have failed.
	Name string
	// Detail is the method and the path, or the set and its machines.
	Detail string
	// Outcome is the status of the answer or the fault; empty for what went well in the world itself.
	Outcome string
}

// Calls returns how often each call has reached Serve, by name.
func (w *World) Calls() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.calls)
}

// Journal returns all calls, in the order in which they ended.
func (w *World) Journal() []Call {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.journal)
}

func (w *World) note(name, detail, outcome string) {
	w.journal = append(w.journal, Call{Time: time.Now(), Name: name, Detail: detail, Outcome: outcome})
}

// Refusal is an answer that is an error.
type Refusal struct {
	Status        int
	Code, Message string
}

func (r *Refusal) Error() string { return r.Code + ": " + r.Message }

// JSON writes an answer.
func JSON(rw http.ResponseWriter, status int, body any) {
	rw.Header().Set("Content-Type", "application/json; charset=utf-8")
	rw.WriteHeader(status)
	_ = json.NewEncoder(rw).Encode(body) // a client that has gone does not read it
}

// Page returns the part of a list that a token names, and the token of the next part; empty at the end.
func Page[T any](all []T, token string, size int) (page []T, next string) {
	from, err := strconv.Atoi(token)
	if err != nil {
		from = 0
	}
	from = min(from, len(all))
	to := min(from+size, len(all))
	if to < len(all) {
		next = strconv.Itoa(to)
	}
	return all[from:to], next
}

// Serve puts faults of the wire in front of a double's handler, and counts and records its calls. name returns the name of a request's call; a
// request without one is passed on unchanged. refuse writes the cloud's answer to Throttled, Conflict, Denied and Unavailable, from faults.
func (w *World) Serve(
	name func(*http.Request) string, faults map[FaultKind]*Refusal, refuse func(http.ResponseWriter, error), h http.Handler,
) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		call := name(r)
		if call == "" {
			h.ServeHTTP(rw, r)
			return
		}
		detail := r.Method + " " + r.URL.RequestURI()
		body, _ := io.ReadAll(r.Body) // a client that has gone does not read the answer
		r.Body = io.NopCloser(bytes.NewReader(body))
		w.mu.Lock()
		w.calls[call]++
		fault := w.nextFault(call, func(set string) bool { return names(r, body, path.Base(set)) }, wireFaults)
		w.mu.Unlock()
		status := 0
		defer func() {
			outcome := string(fault)
			if fault == "" {
				outcome = strconv.Itoa(status)
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			w.note(call, detail, outcome)
		}()
		switch fault {
		case Throttled, Conflict, Denied, Unavailable:
			refuse(rw, faults[fault])
			return
		case DropBefore:
			panic(http.ErrAbortHandler)
		case Twice:
			first := r.Clone(r.Context())
			first.Body = io.NopCloser(bytes.NewReader(body))
			h.ServeHTTP(httptest.NewRecorder(), first)
		}
		recorder := httptest.NewRecorder()
		h.ServeHTTP(recorder, r)
		status = recorder.Code
		if fault == DropAfter {
			panic(http.ErrAbortHandler)
		}
		maps.Copy(rw.Header(), recorder.Header())
		answered := recorder.Body.Bytes()
		if fault != Truncated {
			rw.WriteHeader(recorder.Code)
			_, _ = rw.Write(answered) // a client that has gone does not read it
			return
		}
		rw.Header().Set("Content-Length", strconv.Itoa(max(len(answered), 1)))
		rw.WriteHeader(recorder.Code)
		_, _ = rw.Write(answered[:len(answered)/2])
		_ = http.NewResponseController(rw).Flush()
		panic(http.ErrAbortHandler)
	})
}

// names reports whether a request is about a set: its path names it, or a field of its form.
func names(r *http.Request, body []byte, set string) bool {
	form, _ := url.ParseQuery(string(body)) // another body is no form
	return strings.Contains(r.URL.Path+"/", "/"+set+"/") ||
		slices.ContainsFunc(slices.Collect(maps.Values(form)), func(values []string) bool { return slices.Contains(values, set) })
}
