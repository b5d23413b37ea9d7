// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/notification"
	"moult.dev/moult/internal/outbound"
)

const cluster = "5b1d3c1e-0000-4000-8000-000000000000"

var now = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// startedRollout is a rollout with one notification for each minute of its runs.
func startedRollout(runs int) notification.Rollout {
	r := notification.Rollout{Kind: "Plan", Namespace: "system-upgrade", Name: "k3s", UID: "uid"}
	for i := range runs {
		at := metav1.Time{Time: now.Add(time.Duration(-i) * time.Minute)}
		r.History = append(r.History, v1alpha1.Run{Revision: "v1", CreatedAt: at, StartedAt: &at})
	}
	return r
}

func due(runs int) []notification.Notification {
	return notification.Of([]notification.Rollout{startedRollout(runs)})
}

// The requests are those of the formats, with the webhook's authorization.
func TestSend(t *testing.T) {
	var got *http.Request
	var body []byte
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		got = r
		body, _ = io.ReadAll(r.Body)
	}))
	defer server.Close()
	s, n := newSender(outbound.NewTransport(true), cluster), due(1)[0]
	if _, err := s.send(t.Context(), &webhook{URL: server.URL + "/in", Format: formatCloudEvents, Authorization: "Bearer t"}, &n); err != nil {
		t.Fatal(err)
	}
	var e notification.CloudEvent
	if err := json.Unmarshal(body, &e); err != nil || e.ID != n.ID || e.Source != "urn:uuid:"+cluster {
		t.Errorf("%v, %s", err, body)
	}
	if h := got.Header; got.Method != http.MethodPost || h.Get("Authorization") != "Bearer t" || !strings.HasPrefix(h.Get("Content-Type"), "application/cloudevents+json") {
		t.Errorf("%s %v", got.Method, h)
	}
	if _, err := s.send(t.Context(), &webhook{URL: server.URL, Format: formatSlack}, &n); err != nil {
		t.Fatal(err)
	}
	if text := string(body); !strings.HasPrefix(text, `{"text":"Plan/system-upgrade/k3s has started: `) || got.Header.Get("Authorization") != "" {
		t.Errorf("%s %v", text, got.Header)
	}
}

// What a server answers decides whether the same is sent again. No error has a part of the URL or of the answer.
func TestSendFails(t *testing.T) {
	ended := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/secret/moved":
			http.Redirect(w, r, "/secret/elsewhere", http.StatusTemporaryRedirect)
		case "/secret/elsewhere":
			t.Error("a redirect is followed")
		case "/secret/400":
			http.Error(w, "secret", http.StatusBadRequest)
		case "/secret/403":
			http.Error(w, "secret", http.StatusForbidden)
		case "/secret/503":
			http.Error(w, "secret", http.StatusServiceUnavailable)
		case "/secret/garbage":
			c, _, _ := w.(http.Hijacker).Hijack()
			_, _ = io.WriteString(c, "secret garbage\r\n\r\n")
			_ = c.Close()
		case "/secret/slow":
			<-ended
		}
	}))
	defer server.Close()
	defer close(ended)
	secure := httptest.NewTLSServer(nil)
	defer secure.Close()
	secure.Config.ErrorLog = nil
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	s, n := newSender(outbound.NewTransport(true), cluster), due(1)[0]
	s.client.Timeout = time.Second
	for url, want := range map[string]string{
		server.URL + "/secret/moved":              "the answer is 307, and a redirect is not followed",
		server.URL + "/secret/400":                "refused: the answer is 400 Bad Request",
		server.URL + "/secret/403":                "the answer is 403 Forbidden",
		server.URL + "/secret/503":                "the answer is 503 Service Unavailable",
		server.URL + "/secret/garbage":            "the answer is not HTTP",
		server.URL + "/secret/slow":               "no answer in time",
		secure.URL + "/secret":                    "the server's certificate is not trusted",
		"http://" + l.Addr().String() + "/secret": "the connection is refused",
		"https://secret.invalid/secret":           "the host's name has no address",
	} {
		refused, err := s.send(t.Context(), &webhook{URL: url, Format: formatSlack}, &n)
		got := "sent"
		if err != nil {
			got = err.Error()
		}
		if refused {
			got = "refused: " + got
		}
		if got != want {
			t.Errorf("%s: got %s, want %s", url, got, want)
		}
	}
	local := newSender(outbound.NewTransport(false), cluster)
	if _, err := local.send(t.Context(), &webhook{URL: server.URL, Format: formatSlack}, &n); err == nil || !strings.Contains(err.Error(), "--allow-local-addresses") {
		t.Error(err)
	}
}

// A webhook that fails gets the same notification again after waits that double, and none is left out.
func TestRetry(t *testing.T) {
	up, requests := false, 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if requests++; !up {
			w.WriteHeader(http.StatusBadGateway)
		}
	}))
	defer server.Close()
	clock := clocktesting.NewFakePassiveClock(now)
	c := NewController(clock, nil, Options{Transport: outbound.NewTransport(true)})
	w := &webhook{Name: "ops", URL: server.URL, Format: formatSlack}
	var waits []time.Duration
	for range 12 {
		done, more, wait := c.sendAll(t.Context(), w, due(2))
		if len(done) != 0 || !more || c.waits(w) != wait {
			t.Fatalf("%v %t %s", done, more, wait)
		}
		waits = append(waits, wait)
		clock.SetTime(clock.Now().Add(wait))
		if left := c.waits(w); left > 0 {
			t.Fatalf("it waits %s longer", left)
		}
	}
	if requests != 12 || waits[0] != time.Second || waits[1] != 2*time.Second || waits[11] != 10*time.Minute {
		t.Errorf("%d requests, %v", requests, waits)
	}
	if c.failed(w, true); c.waits(&webhook{Name: "ops", URL: "https://other"}) != 0 {
		t.Error("another URL waits too")
	}
	up = true
	if done, more, wait := c.sendAll(t.Context(), w, due(2)); len(done) != 2 || more || wait != 0 || c.waits(w) != 0 {
		t.Errorf("%d %t %s", len(done), more, wait)
	}
}

// A batch is bounded, and what a server refuses does not hold up the others.
func TestBatch(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadRequest) }))
	defer server.Close()
	c := NewController(clocktesting.NewFakePassiveClock(now), nil, Options{Transport: outbound.NewTransport(true)})
	w := &webhook{Name: "ops", URL: server.URL, Format: formatSlack}
	if done, more, wait := c.sendAll(t.Context(), w, due(batch+1)); len(done) != batch || !more || wait != 0 {
		t.Errorf("%d %t %s", len(done), more, wait)
	}
	w.Events = []notification.Event{notification.Done}
	if done, more, _ := c.sendAll(t.Context(), w, due(batch+1)); len(done) != batch+1 || more {
		t.Errorf("what is not chosen: %d %t", len(done), more)
	}
}
