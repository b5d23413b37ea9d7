// SPDX-License-Identifier: Apache-2.0

package hostupdate

import (
	"k8s.io/utils/ptr"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/kind/nodeturn"
)

// rollBack brings hosts back to the last complete version, after the failure limit has halted the rollout. The next pass begins with it.
func (p *pass) rollBack() {
	if !p.MayRollBack() || p.w.Host.DetectOnly {
		return
	}
	allowed, wave := 0, p.Decision.Wave // The first wave allows no failure.
	if _, total := nodeturn.Units(p.Turns); wave == nil || wave.Number > 1 || wave.State != v1alpha1.WaveHalted {
		allowed = ptr.Deref(p.Mechanism.Strategy(total).MaxFailures, 0)
	}
	if why := p.w.Irreversible(p.Turns, allowed+1); why != "" {
		p.CannotRollBack(why)
		return
	}
	p.w.RolledBack = p.w.Revision
	p.RollBackSoon()
}
