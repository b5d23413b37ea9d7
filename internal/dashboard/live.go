// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"fmt"
	"net/http"
	"time"
)

const (
	// atMost is how often a browser is told of a change.
	atMost = time.Second
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
		case <-s.clock.After(atMost):
		}
	}
}
