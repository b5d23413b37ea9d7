// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
)

func TestPlanFollowsAChannel(t *testing.T) {
	t.Parallel()
	take(t, 1)
	var mu sync.Mutex
	var headers []http.Header
	broken := true
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		headers = append(headers, r.Header.Clone())
		switch {
		case r.URL.Path == "/hang":
			<-r.Context().Done()
		case broken:
			http.NotFound(w, r)
		case r.URL.Path == "/latest":
			http.Redirect(w, r, "https://example.com/releases/v1.31.2%2Bk3s1", http.StatusFound)
		default:
			http.Redirect(w, r, "/releases/v1.30.9+k3s1", http.StatusFound)
		}
	}))
	t.Cleanup(server.Close)

	p := newPlan(t, "channel", "true")
	p.Spec.Version, p.Spec.Channel = "", server.URL+"/latest"
	create(t, p)
	message := condition(t, p.Name, upgradev1.ConditionLatestResolved, metav1.ConditionFalse, upgradev1.ReasonError)
	if !strings.Contains(message, "unexpected response: HTTP/1.1 404 Not Found") {
		t.Errorf("message is %q", message)
	}
	condition(t, p.Name, upgradev1.ConditionComplete, metav1.ConditionFalse, upgradev1.ReasonNotReady)

	// It asks again by itself.
	mu.Lock()
	broken = false
	mu.Unlock()
	p = complete(t, p.Name)
	if want := "v1.31.2-k3s1"; p.Status.LatestVersion != want {
		t.Errorf("latestVersion is %q, want %q", p.Status.LatestVersion, want)
	}

	// Another channel is asked at once, and does not lead back.
	edit(t, p.Name, func(p *upgradev1.Plan) { p.Spec.Channel = server.URL + "/stable" })
	status(t, p.Name, "refuses to go back", func(s *upgradev1.PlanStatus) bool {
		c := s.Condition(upgradev1.ConditionLatestResolved)
		return s.LatestVersion == "v1.31.2-k3s1" && strings.Contains(c.Message, "v1.30.9-k3s1, which is lower")
	})
	edit(t, p.Name, func(p *upgradev1.Plan) { p.Spec.AllowDowngrade = true })
	status(t, p.Name, "goes back when told to", func(s *upgradev1.PlanStatus) bool { return s.LatestVersion == "v1.30.9-k3s1" })
	complete(t, p.Name)

	mu.Lock()
	defer mu.Unlock()
	last := headers[len(headers)-1]
	if id := last["X-Suc-Cluster-Id"]; len(id) != 1 || id[0] == "" {
		t.Errorf("no cluster id among %v", last)
	}
	if v := last.Get("X-SUC-Latest-Version"); v != "v1.31.2-k3s1" {
		t.Errorf("the version sent is %q", v)
	}
}

// Channels that never answer hold up no other Plan.
func TestPlanChannelsThatHangHoldUpNobody(t *testing.T) {
	t.Parallel()
	take(t, 1)
	hang := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hang }))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(hang) })
	for _, name := range []string{"hangs-a", "hangs-b", "hangs-c"} {
		p := newPlan(t, name, "true")
		p.Spec.Version, p.Spec.Channel = "", server.URL
		create(t, p)
	}
	p := newPlan(t, "hangs-not", "true")
	create(t, p)
	complete(t, p.Name)
	condition(t, "hangs-a", upgradev1.ConditionLatestResolved, metav1.ConditionUnknown, upgradev1.ReasonChannel)
}
