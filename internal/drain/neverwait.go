// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"net/http"
	"strings"

	"k8s.io/client-go/rest"
)

// NeverWait returns a config whose evictions return at once. By itself client-go obeys the Retry-After of a refused
// eviction: it would sleep ten seconds, ten times, inside one call. The error is unchanged.
func NeverWait(c *rest.Config) *rest.Config {
	c = rest.CopyConfig(c)
	c.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			resp, err := next.RoundTrip(r)
			if err == nil && strings.HasSuffix(r.URL.Path, "/eviction") {
				resp.Header.Del("Retry-After")
			}
			return resp, err
		})
	})
	return c
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
