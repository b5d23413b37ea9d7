// SPDX-License-Identifier: Apache-2.0

// Package dashboard serves web pages about rollouts. It decides nothing and reads nothing: whoever starts it publishes what the read model
// (package view) says, again after each change.
//
//	Publish ──▶ State ──┬▶ fleet.go     every node, budgets, what needs a person
//	                    ├▶ rollout.go   one rollout; one node, as kubectl moult why explains it
//	                    ├▶ answer.go    one compressed answer for all viewers of a state
//	                    ├▶ viewer.go    what a viewer of a shared server may see of it
//	                    └▶ dashboard.go tells browsers that there is a newer state; they fetch the part of the page again
//
// Pages are made by gomponents, not html/template: that one keeps the linker from leaving out unused methods, and doubles the programs' size. A
// browser without JavaScript loads them again every few seconds.
package dashboard

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"moult.dev/moult/internal/cli/text"
	"moult.dev/moult/internal/view"
)

// State is what the pages show: the cluster at one moment. It is not changed after it was published.
type State struct {
	At time.Time
	// Notes say what is not shown. Stale says why it may be out of date; empty if it is not.
	Notes    []string
	Stale    string
	Rollouts []view.Rollout
	Budgets  []view.Budget
	// Nodes are all nodes, by name.
	Nodes []*corev1.Node

	version int // counts the states
	// restricted is true for a state without what its viewer may not see.
	restricted bool
	mu         sync.Mutex
	answers    map[string]func() ([]byte, error) // compressed, by request
}

// Reader answers what takes more than the state. Its functions may be called at the same time.
type Reader struct {
	// Why explains a node. It returns false if there is none.
	Why func(node string) (text.Lines, bool)
	// Preview says what a rollout would do.
	Preview func(ctx context.Context, kind, namespace, name string) (text.Lines, error)
	// Logs returns the last lines of what failed on a node. Nil means that no logs are shown.
	Logs func(ctx context.Context, kind, namespace, name, node string) (string, error)
}

// Server serves the pages.
type Server struct {
	http.Handler
	clock clock.Clock
	read  Reader

	mu      sync.Mutex
	state   *State
	changed chan struct{} // closed when there is a newer state
}

// New returns a server that has nothing to show yet.
func New(clk clock.Clock, read Reader) *Server {
	s := &Server{clock: clk, read: read, changed: make(chan struct{})}
	mux := http.NewServeMux()
	mux.Handle("GET /assets/", http.FileServerFS(assets))
	mux.HandleFunc("GET /{$}", s.page(s.fleetPage))
	mux.HandleFunc("GET /rollouts/{kind}/{namespace}/{name}", s.page(s.rolloutPage))
	mux.HandleFunc("GET /nodes/{node}", s.page(s.nodePage))
	mux.HandleFunc("GET /nodes", s.findNode)
	mux.HandleFunc("GET /logs/{kind}/{namespace}/{name}/{node}", s.logs)
	mux.HandleFunc("GET /fleet.json", s.answer("application/json", fleetJSON))
	mux.HandleFunc("GET /changes", s.changes)
	s.Handler = guard(mux)
	return s
}

// WithoutLogs shows no logs. It is called before the server is used.
func (s *Server) WithoutLogs() { s.read.Logs = nil }

// Publish replaces the state.
func (s *Server) Publish(next *State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state != nil {
		next.version = s.state.version
	}
	next.version++
	s.state = next
	close(s.changed)
	s.changed = make(chan struct{})
}

// current returns the state, which is nil at the beginning, and a channel that is closed when there is a newer one.
func (s *Server) current() (*State, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state, s.changed
}

// guard sets the headers that keep other sites, and injected text, from doing anything.
func guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "+
			"form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

const (
	// minInterval is the least time between two events of changes that a browser gets.
	minInterval = time.Second
	// alive is how often something is sent without a change, so that both ends notice a broken connection.
	alive = 15 * time.Second
)

// changes sends the number of each newer state as a server-sent event, until the browser goes.
func (s *Server) changes(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	out := http.NewResponseController(w)
	sent := -1
	for {
		state, changed := s.current()
		line := ": alive\n\n"
		if state != nil && state.version != sent {
			sent = state.version
			line = fmt.Sprintf("id: %d\ndata: %d\n\n", sent, sent)
		}
		if _, err := fmt.Fprint(w, line); err != nil || out.Flush() != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-s.clock.After(alive):
			continue
		case <-changed:
		}
		select {
		case <-r.Context().Done():
			return
		case <-s.clock.After(minInterval):
		}
	}
}
