// SPDX-License-Identifier: Apache-2.0

package clouds_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"moult.dev/moult/test/clouds"
)

func TestServe(t *testing.T) {
	tests := map[clouds.FaultKind]struct {
		done int
		want string
	}{
		"":                 {1, "200 did ask"},
		clouds.Throttled:   {0, "418 Throttled:"},
		clouds.Conflict:    {0, "418 Conflict:"},
		clouds.Denied:      {0, "418 Denied:"},
		clouds.Unavailable: {0, "418 Unavailable:"},
		clouds.DropBefore:  {0, "dropped"},
		clouds.DropAfter:   {1, "dropped"},
		clouds.Twice:       {2, "200 did ask"},
		clouds.Truncated:   {1, "200 did dropped"},
	}
	for kind, test := range tests {
		t.Run(string(kind), func(t *testing.T) {
			w := clouds.New(t.Context(), clouds.Options{})
			done := 0
			server := httptest.NewServer(w.Serve(
				func(r *http.Request) string { return strings.TrimPrefix(r.URL.Path, "/") },
				map[clouds.FaultKind]*clouds.Refusal{kind: {Code: string(kind)}},
				func(rw http.ResponseWriter, err error) { http.Error(rw, err.Error(), http.StatusTeapot) },
				http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
					body, err := io.ReadAll(r.Body)
					if err != nil {
						t.Error(err)
					}
					done++
					_, _ = rw.Write([]byte("did " + string(body)))
				})))
			defer server.Close()
			ask := func(call string) string {
				answer, err := http.Post(server.URL+"/"+call, "text/plain", strings.NewReader("ask"))
				if err != nil {
					return "dropped"
				}
				defer answer.Body.Close()
				body, err := io.ReadAll(answer.Body)
				if err != nil {
					body = append(body, " dropped"...)
				}
				return answer.Status[:4] + strings.TrimSpace(string(body))
			}
			if kind != "" {
				w.Fault(clouds.Fault{Kind: kind, Call: "call", Times: 1})
			}
			want := []string{"200 did ask", test.want, "200 did ask", "200 did ask"}
			if diff := cmp.Diff(want, []string{ask("other"), ask("call"), ask("call"), ask("")}); diff != "" {
				t.Errorf("answers (-want +got):\n%s", diff)
			}
			if done != 3+test.done {
				t.Errorf("done %d times, want %d", done, 3+test.done)
			}
			if diff := cmp.Diff(map[string]int{"other": 1, "call": 2}, w.Calls()); diff != "" {
				t.Errorf("calls (-want +got):\n%s", diff)
			}
			outcome := string(kind)
			if outcome == "" {
				outcome = "200"
			}
			var outcomes []string
			for _, c := range w.Journal() {
				outcomes = append(outcomes, c.Name+" "+c.Detail+" "+c.Outcome)
			}
			if diff := cmp.Diff([]string{"other POST /other 200", "call POST /call " + outcome, "call POST /call 200"}, outcomes); diff != "" {
				t.Errorf("journal (-want +got):\n%s", diff)
			}
		})
	}
}
