// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"sync"
	"testing"
	"time"
)

// What real kubelets have a part in. All of these run at once on the same machines, each in a namespace of its own.
func TestDaemonsOnMachines(t *testing.T) {
	t.Parallel()
	var nodes []string
	for _, m := range takeMachines(t, machines) {
		nodes = append(nodes, m.Name())
	}
	label := labelOf(t)
	tests := newTogether(t, 6)
	for _, tc := range []struct {
		name string
		run  func(*testing.T, *daemons)
	}{
		{"foo", fooWithCanary},
		{"cannot-start", canariesThatCannotStart},
		{"fail", canariesThatFail},
		{"readiness", canaryNeedsReadiness},
		{"by-hand", canaryByHand},
		{"failed-by-hand", canaryFailedByHand},
		{"frozen", pausedAndFrozen},
		{"slow-start", slowStart(6*time.Second, 20*time.Second)},
		{"overrides", overridden},
		{"exclude", excluded},
		{"surge", surge},
		{"host-port", surgeWithHostPort},
		{"min-ready", minReadySeconds},
		{"one-at-a-time", createdOneByOne},
		{"migrate", migrateOrphans(0)},
		{"migrate-surge", migrateOrphans(1)},
	} {
		tests.run(tc.name, func(t *testing.T) { tc.run(t, newDaemons(t, tc.name, label, nodes)) })
	}
	tests.wait()
}

// together runs tests of a test, so many at once. Parallel tests would wait for their turn, which those have that wait for the
// machines.
type together struct {
	*testing.T
	group sync.WaitGroup
	slots chan struct{}
}

func newTogether(t *testing.T, atOnce int) *together {
	t.Helper()
	return &together{T: t, slots: make(chan struct{}, atOnce)}
}

func (a *together) run(name string, test func(*testing.T)) {
	a.group.Go(func() {
		a.slots <- struct{}{}
		defer func() { <-a.slots }()
		a.Run(name, test)
	})
}

func (a *together) wait() { a.group.Wait() }
