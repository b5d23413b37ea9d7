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

	clocktesting "k8s.io/utils/clock/testing"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/notification"
	"moult.dev/moult/internal/outbound"
)

const clusterID = "5b1d3c1e-0000-4000-8000-000000000000"

var now = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// started is the notification that a rollout has started.
func started() *notification.Notification {
	r := notification.Rollout{Kind: "Plan", Namespace: "system-upgrade", Name: "k3s", UID: "uid"}
	return &notification.Notification{ID: "id", Event: notification.Started, Time: now, Rollout: &r, Run: &v1alpha1.Run{Revision: "v1"}}
}

func newSender(local bool) *Controller {
	return NewController(clocktesting.NewFakePassiveClock(now), nil, Options{Cluster: clusterID, Transport: outbound.NewTransport(local)})
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
	s, n := newSender(true), started()
	if _, err := s.send(t.Context(), &webhook{URL: server.URL + "/in", Format: formatCloudEvents, Authorization: "Bearer t"}, n); err != nil {
		t.Fatal(err)
	}
	var e notification.CloudEvent
	if err := json.Unmarshal(body, &e); err != nil || e.ID != n.ID || e.Source != "urn:uuid:"+clusterID {
		t.Errorf("%v, %s", err, body)
	}
	if h := got.Header; got.Method != http.MethodPost || h.Get("Authorization") != "Bearer t" || !strings.HasPrefix(h.Get("Content-Type"), "application/cloudevents+json") {
		t.Errorf("%s %v", got.Method, h)
	}
	if _, err := s.send(t.Context(), &webhook{URL: server.URL, Format: formatSlack}, n); err != nil {
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
	s, n := newSender(true), started()
	s.http.Timeout = time.Second
	for url, want := range map[string]string{
		server.URL + "/secret/moved":              "the answer is 307 Temporary Redirect",
		server.URL + "/secret/400":                "refused: the answer is 400 Bad Request",
		server.URL + "/secret/403":                "the answer is 403 Forbidden",
		server.URL + "/secret/503":                "the answer is 503 Service Unavailable",
		server.URL + "/secret/garbage":            "the connection ended, or the answer is not HTTP",
		server.URL + "/secret/slow":               "no answer in time",
		secure.URL + "/secret":                    "the server's certificate is not trusted",
		"http://" + l.Addr().String() + "/secret": "connect: connection refused",
		"https://secret.invalid/secret":           "no such host",
	} {
		outcome, err := s.send(t.Context(), &webhook{URL: url, Format: formatSlack}, n)
		got := "sent"
		if err != nil {
			got = err.Error()
		}
		if outcome == outcomeRefused {
			got = "refused: " + got
		}
		if got != want {
			t.Errorf("%s: got %s, want %s", url, got, want)
		}
	}
	local := newSender(false)
	if _, err := local.send(t.Context(), &webhook{URL: server.URL, Format: formatSlack}, n); err == nil || !strings.Contains(err.Error(), "--allow-local-addresses") {
		t.Error(err)
	}
}
