// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"testing"

	"moult.dev/moult/internal/rollout"
)

// Simulate runs the simulation of a control plane, or of other nodes, with faults. It calls observe with what is decided, before that is done.
func Simulate(t *testing.T, seed uint64, plane bool, observe func(*World, []*Turn, []rollout.Unit, rollout.Decision)) {
	t.Helper()
	s := newSimulation(t, seed, 0.05)
	s.rules.ControlPlane, s.nevers, s.strikes, s.observe = plane, 0.2, 1, observe
	s.run(1, 6, false)
}
