// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/tls"
	"net/http"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// scrapes bounds how many requests for metrics are answered at once. Further ones get the status 503.
const scrapes = 8

// metricsOptions returns how metrics are served. If secure: by TLS, to those whom the API server authenticates and authorizes.
func (s *settings) metricsOptions() metricsserver.Options {
	slots := make(chan struct{}, scrapes)
	return metricsserver.Options{
		BindAddress: s.metricsAddress, SecureServing: s.metricsSecure,
		TLSOpts: []func(*tls.Config){func(c *tls.Config) { c.NextProtos = []string{"http/1.1"} }}, // One request at a time on a connection.
		FilterProvider: func(cfg *rest.Config, c *http.Client) (metricsserver.Filter, error) {
			a, err := newAccess(cfg, c)
			return func(_ logr.Logger, h http.Handler) (http.Handler, error) {
				if s.metricsSecure {
					h = a.only(h)
				}
				return limited(slots, h), nil
			}, err
		},
	}
}

func limited(slots chan struct{}, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
			h.ServeHTTP(w, r)
		default:
			http.Error(w, "too many requests for metrics at once", http.StatusServiceUnavailable)
		}
	})
}
