// SPDX-License-Identifier: Apache-2.0

package rollout

import "moult.dev/moult/api/v1alpha1"

// paused starts nothing of a rollout that somebody has paused, not even what is to start over.
func paused(p *pass, _ *candidate) (v1alpha1.Reason, string) {
	if p.strategy.Paused {
		return v1alpha1.ReasonPaused, "the rollout is paused"
	}
	return "", ""
}

// understood starts nothing of a rollout whose strategy can't be read: who knows what it was to forbid.
func understood(p *pass, _ *candidate) (v1alpha1.Reason, string) {
	if p.strategy.Error != "" {
		return v1alpha1.ReasonStrategyInvalid, p.strategy.Error
	}
	return "", ""
}
