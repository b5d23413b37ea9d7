// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
)

// hurried is a clock on which every pause is over at once.
type hurried struct{ clock.RealClock }

func (hurried) After(time.Duration) <-chan time.Time {
	over := make(chan time.Time, 1)
	over <- time.Time{}
	return over
}

// An agent works only where the API server refuses what its policy forbids. Until a Node exists that is not known.
func TestRequirePolicy(t *testing.T) {
	refusal := func(code int, reason string) string {
		return fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d}`, reason, code)
	}
	for name, tc := range map[string]struct {
		codes   []int
		reasons []string
		want    error
	}{
		"refused":           {[]int{403}, []string{"Forbidden"}, nil},
		"accepted":          {[]int{200}, []string{""}, errNoPolicy},
		"no Node at first":  {[]int{404, 403}, []string{"NotFound", "Forbidden"}, nil},
		"no Node, accepted": {[]int{404, 200}, []string{"NotFound", ""}, errNoPolicy},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asked := 0
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method != http.MethodPatch || r.URL.Query().Get("dryRun") != "All" {
					t.Errorf("%s %s", r.Method, r.URL)
				}
				i := min(asked, len(tc.codes)-1)
				asked++
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(tc.codes[i])
				if tc.codes[i] == http.StatusOK {
					fmt.Fprint(w, `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"n"}}`)
					return
				}
				fmt.Fprint(w, refusal(tc.codes[i], tc.reasons[i]))
			}))
			defer s.Close()
			a, err := New(Options{NodeName: "n", Config: &rest.Config{Host: s.URL}, RequirePolicy: true})
			if err != nil {
				t.Fatal(err)
			}
			a.clock = hurried{}
			if err := a.requirePolicy(t.Context()); !errors.Is(err, tc.want) || asked != len(tc.codes) {
				t.Errorf("got %v after %d requests, want %v", err, asked, tc.want)
			}
		})
	}
}
