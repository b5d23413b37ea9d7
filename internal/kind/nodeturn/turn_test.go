// SPDX-License-Identifier: Apache-2.0

package nodeturn

import (
	"testing"

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
