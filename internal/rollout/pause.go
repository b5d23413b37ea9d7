// SPDX-License-Identifier: Apache-2.0

package rollout

import "moult.dev/moult/api/v1alpha1"

// paused starts nothing in a paused rollout, restarts included.
func paused(p *pass, _ *candidate) (v1alpha1.Reason, string) {
	if p.strategy.Paused {
		return v1alpha1.ReasonPaused, "the rollout is paused"
	}
	return "", ""
}

// understood starts nothing in a rollout with an invalid strategy.
func understood(p *pass, _ *candidate) (v1alpha1.Reason, string) {
	if p.strategy.Error != "" {
		return v1alpha1.ReasonStrategyInvalid, p.strategy.Error
	}
	return "", ""
}
