// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"time"

	"moult.dev/moult/api/v1alpha1"
)

// unclaimed keeps a rollout away from nodes that another one has. Shared claims tolerate each other; an exclusive one
// tolerates none, in either direction.
func unclaimed(p *pass, u *Unit) (v1alpha1.Reason, string) {
	node := p.fleet[u.Node]
	if node.ClaimError != "" {
		return v1alpha1.ReasonClaimUnreadable, node.ClaimError
	}
	for i := range node.Claims {
		c := &node.Claims[i]
		if c.UID == p.strategy.UID || c.Shared && p.strategy.Shared {
			continue
		}
		return v1alpha1.ReasonClaimed, "claimed by " + c.Rollout + " since " + c.Since.UTC().Format(time.RFC3339)
	}
	return "", ""
}
