// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"time"

	"moult.dev/moult/api/v1alpha1"
)

// unclaimed keeps a rollout away from nodes that another one has. Shared claims tolerate each other; an exclusive one
// tolerates none, in either direction; and a rollout that claims no nodes is not to change anything under another's hands.
// One that only remembers that its node was skipped is in nobody's way.
func unclaimed(p *pass, c *candidate) (v1alpha1.Reason, string) {
	if c.node.ClaimError != "" {
		return v1alpha1.ReasonClaimUnreadable, c.node.ClaimError
	}
	for i := range c.node.Claims {
		claim := &c.node.Claims[i]
		shared := claim.Shared && p.strategy.Shared && !p.strategy.Beside
		if claim.UID == p.strategy.UID || shared || claim.Parked() {
			continue
		}
		return v1alpha1.ReasonClaimed, "claimed by " + claim.Rollout + " since " + claim.Since.UTC().Format(time.RFC3339)
	}
	return "", ""
}
