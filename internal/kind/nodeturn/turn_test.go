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
