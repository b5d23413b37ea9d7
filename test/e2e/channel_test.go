// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
)

// A Plan follows its channel, and to a lower version only if it may.
func TestPlanFollowsAChannel(t *testing.T) {
	t.Parallel()
	takeSimulated(t, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		version := map[string]string{"/latest": "v1.31.2%2Bk3s1", "/stable": "v1.30.9+k3s1"}[r.URL.Path]
		http.Redirect(w, r, "https://example.com/releases/"+version, http.StatusFound)
	}))
	t.Cleanup(server.Close)
	p := newPlan(t, "channel", "true")
	p.Spec.Version, p.Spec.Channel = "", server.URL+"/latest"
	create(t, p)
	if got := complete(t, p.Name).Status.LatestVersion; got != "v1.31.2-k3s1" {
		t.Errorf("latestVersion is %q", got)
	}
	edit(t, p.Name, func(p *upgradev1.Plan) { p.Spec.Channel = server.URL + "/stable" })
	status(t, p.Name, "refuses a lower version", func(s *upgradev1.PlanStatus) bool {
		return s.LatestVersion == "v1.31.2-k3s1" && strings.Contains(s.Condition(upgradev1.ConditionLatestResolved).Message, "v1.30.9-k3s1, which is lower")
	})
	edit(t, p.Name, func(p *upgradev1.Plan) { p.Spec.AllowDowngrade = true })
	status(t, p.Name, "has the lower version", func(s *upgradev1.PlanStatus) bool { return s.LatestVersion == "v1.30.9-k3s1" })
	complete(t, p.Name)
}
