// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	"moult.dev/moult/internal/cli/text"
)

// mostAnswers is how many answers a state keeps.
const mostAnswers = 100

// errMissing is the answer for what does not exist.
var errMissing = errors.New("it does not exist, or it may not be read")

// answer returns a handler that sends what write makes of the state that the viewer may see.
func (s *Server) answer(contentType string, write func(*http.Request, *State, io.Writer) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		state := s.seen(r)
		if state == nil {
			w.Header().Set("Refresh", "1") // Browsers load the page again.
			http.Error(w, "The cluster is being read. Try again in a moment.", http.StatusServiceUnavailable)
			return
		}
		body, err := state.compressed(r, write)
		if err != nil {
			serveError(w, err)
			return
		}
		w.Header().Set("Content-Type", contentType)
		if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(body) // The browser may be gone.
			return
		}
		if unpacked, err := gzip.NewReader(bytes.NewReader(body)); err == nil {
			_, _ = io.Copy(w, unpacked) //nolint:gosec // This server packed it.
		}
	}
}

// compressed returns the compressed answer to a request. All viewers who see this state get the same bytes, so their number costs little.
func (s *State) compressed(r *http.Request, write func(*http.Request, *State, io.Writer) error) ([]byte, error) {
	s.mu.Lock()
	if s.answers == nil || len(s.answers) >= mostAnswers {
		s.answers = map[string]func() ([]byte, error){}
	}
	key := fmt.Sprint(viewerOf(r).loggedIn, r.URL)
	answer := s.answers[key]
	if answer == nil {
		answer = sync.OnceValues(func() ([]byte, error) {
			var out bytes.Buffer
			zip, _ := gzip.NewWriterLevel(&out, gzip.BestSpeed) // The level is valid.
			err := errors.Join(write(r, s, zip), zip.Close())
			return out.Bytes(), err
		})
		s.answers[key] = answer
	}
	s.mu.Unlock()
	return answer()
}

func serveError(w http.ResponseWriter, err error) {
	status := http.StatusBadGateway
	if errors.Is(err, errMissing) {
		status = http.StatusNotFound
	}
	http.Error(w, text.Clean(err.Error()), status)
}
