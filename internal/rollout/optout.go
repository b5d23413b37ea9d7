// SPDX-License-Identifier: Apache-2.0

package rollout

import "moult.dev/moult/api/v1alpha1"

// optedOut refuses nodes with the rollout's opt-out label.
func optedOut(_ *pass, c *candidate) (v1alpha1.Reason, string) {
	if c.OptedOut {
		return v1alpha1.ReasonOptedOut, "the node's label opts it out"
	}
	return "", ""
}
