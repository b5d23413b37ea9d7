// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"
)

// What real kubelets have a part in. All of these run at once on the same machines, each in a namespace of its own.
func TestDaemonsOnMachines(t *testing.T) {
	t.Parallel()
	var nodes []string
	for _, m := range takeMachines(t, machines) {
		nodes = append(nodes, m.Name())
	}
	label := labelOf(t)
	for _, tc := range []struct {
		name string
		run  func(*testing.T, *daemons)
	}{
		{"foo", fooWithCanary},
		{"cannot-start", canariesThatCannotStart},
		{"fail", canariesThatFail},
		{"readiness", canaryNeedsReadiness},
		{"surge", surge},
		{"host-port", surgeWithHostPort},
		{"min-ready", minReadySeconds},
		{"one-at-a-time", createdOneByOne},
		{"migrate", migrateOrphans(0)},
		{"migrate-surge", migrateOrphans(1)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			tc.run(t, newDaemons(t, tc.name, label, nodes))
		})
	}
}
