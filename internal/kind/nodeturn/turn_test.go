// SPDX-License-Identifier: Apache-2.0

package nodeturn

import (
	"strings"
	"testing"
	"unicode/utf8"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/rollout"
)

func TestReadClaims(t *testing.T) {
	known := &rollout.Node{Claims: []v1alpha1.Claim{{Rollout: "Plan/k3s", UID: "u0"}, {Rollout: "Plan/other", UID: "u2"}, {Rollout: "Plan/k3s", UID: "u1"}}}
	b := Turn{}
	if b.ReadClaims(known, "u1"); b.Claim == nil || b.Claim.UID != "u1" || b.Claim == &known.Claims[2] || len(b.Claims) != 3 {
		t.Errorf("got %+v", b)
	}
	for name, from := range map[string]*rollout.Node{"another claim": known, "no claims": {}, "an unknown node": nil} {
		b := Turn{}
		if b.ReadClaims(from, "u3"); b.Claim != nil || b.Unreadable {
			t.Errorf("%s: got %+v", name, b)
		}
	}
}

func TestShort(t *testing.T) {
	if got := Short("x"); got != "x" {
		t.Errorf("got %s", got)
	}
	got := Short("x" + strings.Repeat("ü", longest))
	if len(got) > longest || len(got) < longest-3 || !utf8.ValidString(got) || !strings.HasSuffix(got, "ü…") {
		t.Errorf("%d bytes: %s", len(got), got)
	}
}

// An approval of a NodeRollout ends when what is done to nodes changes, and with nothing else.
func TestTemplate(t *testing.T) {
	spec := func() *v1alpha1.NodeRolloutSpec { return &v1alpha1.NodeRolloutSpec{HostUpdate: &v1alpha1.HostUpdate{}} }
	for name, tc := range map[string]struct {
		change func(*v1alpha1.NodeRolloutSpec)
		other  bool
	}{
		"nothing":   {func(*v1alpha1.NodeRolloutSpec) {}, false},
		"a pause":   {func(s *v1alpha1.NodeRolloutSpec) { s.Strategy = &v1alpha1.Strategy{Paused: true} }, false},
		"health":    {func(s *v1alpha1.NodeRolloutSpec) { s.Health = &v1alpha1.NodeHealth{MinReadySeconds: 1} }, false},
		"a version": {func(s *v1alpha1.NodeRolloutSpec) { s.HostUpdate.Version = "1.2.3" }, false},
		"the drain": {func(s *v1alpha1.NodeRolloutSpec) { s.Drain = &v1alpha1.NodeDrain{DisableEviction: true} }, true},
		"the hooks": {func(s *v1alpha1.NodeRolloutSpec) {
			s.HostUpdate.Hooks = &v1alpha1.RebootHooks{BeforeReboot: []string{"a"}}
		}, true},
		"no balance": {func(s *v1alpha1.NodeRolloutSpec) {
			s.HostUpdate.ExcludeFromLoadBalancers = &v1alpha1.LoadBalancerExclusion{Disabled: true}
		}, true},
	} {
		changed := spec()
		tc.change(changed)
		if other := template(changed) != template(spec()); other != tc.other {
			t.Errorf("%s: another template: %v", name, other)
		}
	}
}
