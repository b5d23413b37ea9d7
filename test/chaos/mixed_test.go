// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"fmt"
	"testing"
	"time"

	"moult.dev/moult/test/cluster"
	"moult.dev/moult/test/tier"
)

// Two Plans, a host update, a replacement of machines and an ExtendedDaemonSet with a canary go on at the same time, over nodes that they share.
// Two budgets overlap on the hosts, and a person has cordoned one node. The operator is killed at a write of each.
// `MOULT_SEED=7 go test ./test/chaos -run 'TestMixed/seed-7$'` runs one seed alone.
func TestMixed(t *testing.T) {
	seeds := uint64(2)
	if tier.All {
		seeds = 20
	}
	first, program := seedOf(t), buildOperator(t)
	t.Setenv(cluster.SharedDir, cluster.Shared(t, 0).Dir())
	for seed := first; seed < first+seeds; seed++ {
		t.Run(fmt.Sprintf("seed-%d", seed), func(t *testing.T) { runMixed(t, program, seed) })
	}
}

func runMixed(t *testing.T, program string, seed uint64) {
	const nodes, count, machines, surge = 6, 3, 3, 1
	ctx, h := newHarness(t, program)
	budgets := []budget{
		// One of these nodes is the one that a person has cordoned.
		{"plans-and-hosts", 4, []string{planPool, hostPool}},
		{"hosts-and-machines", 2, []string{hostPool, machinePool}},
	}
	c := newChaos(ctx, h, seed, newMachines(h, seed, machines, surge), budgets,
		&plans{harness: h, plan: "cordons", nodes: nodes, atOnce: 2},
		&plans{harness: h, plan: "drains", atOnce: 2, drains: true},
		&daemons{harness: h, sets: []string{"everywhere"}, pools: []string{planPool, hostPool}, nodes: nodes + count},
		&hosts{harness: h, count: count})
	began := time.Now()
	defer func() {
		if t.Failed() && !c.checked {
			replayed(t, h.journal.inOrder(), c.invariants())
		}
	}()
	c.begin(ctx)
	h.args = append(h.args, "--install-crds=false") // They are there.
	c.killEach(ctx)
	c.finish(ctx)
	c.check(ctx)
	t.Logf("it took %.1f s, with kills in the middle of turns of %v", time.Since(began).Seconds(), c.tally)
}
