// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"time"

	"moult.dev/moult/api/v1alpha1"
)

// unclaimed refuses nodes that another rollout has claimed. Shared claims may coexist. An exclusive claim excludes all
// others. A rollout that claims no nodes waits for every claim. A parked claim excludes nothing.
func unclaimed(p *pass, c *candidate) (v1alpha1.Reason, string) {
	if c.node.ClaimError != "" {
		return v1alpha1.ReasonClaimUnreadable, c.node.ClaimError
	}
	for i := range c.node.Claims {
		claim := &c.node.Claims[i]
		shared := claim.Shared && p.strategy.Shared && !p.strategy.Claimless
		if claim.UID == p.strategy.UID || shared || claim.Parked() {
			continue
		}
		return v1alpha1.ReasonClaimed, "claimed by " + claim.Rollout + " since " + claim.Since.UTC().Format(time.RFC3339)
	}
	return "", ""
}
