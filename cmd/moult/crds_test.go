// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"moult.dev/moult/test/cluster"
)

// roundTripper is a function that sends requests.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Definitions are established before discovery shows their groups. The operator waits until it does, and does not end with an error.
func TestAPIInstallCRDsWaitsForDiscovery(t *testing.T) {
	const hidden = 2
	const groups = `{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"apps","versions":[{"groupVersion":"apps/v1","version":"v1"}]}]}`
	cfg := cluster.Shared(t, 0).Config()
	var asked atomic.Int32
	cfg.Wrap(func(base http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.URL.Path != "/apis" || asked.Add(1) > hidden {
				return base.RoundTrip(r)
			}
			return &http.Response{
				StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(groups)), Request: r,
			}, nil
		})
	})
	if err := installCRDs(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	if n := asked.Load(); n != hidden+1 {
		t.Errorf("discovery was asked %d times, want %d", n, hidden+1)
	}
}
