// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
)

// prometheus answers as one that has no alerts.
type prometheus struct {
	server *httptest.Server
	asked  atomic.Int64
}

func startPrometheus() *prometheus {
	p := &prometheus{}
	answer := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			p.asked.Add(1)
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, text)
		}
	}
	mux := http.NewServeMux()
	mux.Handle("/api/v1/query", answer(`{"status":"success","data":{"resultType":"vector","result":[]}}`))
	mux.Handle("/api/v1/alerts", answer(`{"status":"success","data":{"alerts":[]}}`))
	p.server = httptest.NewServer(mux)
	return p
}

func (p *prometheus) stop() { p.server.Close() }
