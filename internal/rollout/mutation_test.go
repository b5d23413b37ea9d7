// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"slices"
	"testing"
)

// TestMutations leaves out one rule after the other and lets the simulation find out: a rule that could be missing unnoticed
// is one that nobody tests.
func TestMutations(t *testing.T) {
	if testing.Short() {
		t.Skip("it simulates many worlds")
	}
	const worlds = 2000
	type mutation struct {
		name string
		how  func(*rules)
	}
	var all []mutation
	for i, c := range standard.checks {
		all = append(all, mutation{"check " + c.name, func(r *rules) { r.checks = slices.Delete(r.checks, i, i+1) }})
	}
	for i, h := range standard.halts {
		all = append(all, mutation{"halt " + h.name, func(r *rules) { r.halts = slices.Delete(r.halts, i, i+1) }})
	}
	for i, e := range standard.endings {
		all = append(all, mutation{"ending " + e.name, func(r *rules) { r.endings = slices.Delete(r.endings, i, i+1) }})
	}
	for i, b := range standard.books {
		all = append(all, mutation{"book " + b.name, func(r *rules) { r.books = slices.Delete(r.books, i, i+1) }})
	}
	for _, m := range all {
		t.Run(m.name, func(t *testing.T) {
			without := rules{
				checks: slices.Clone(standard.checks), halts: slices.Clone(standard.halts),
				endings: slices.Clone(standard.endings), books: slices.Clone(standard.books),
			}
			m.how(&without)
			seed, _, ok := simulate(&without, 1, worlds, func(uint64) {})
			if ok {
				t.Fatalf("in %d worlds nobody notices", worlds)
			}
			_, what := run(&without, seed, true)
			t.Logf("seed %d: %.120s", seed, what)
		})
	}
	t.Run("none", func(t *testing.T) {
		if seed, _, ok := simulate(&standard, 1, 300, func(uint64) {}); !ok {
			_, what := run(&standard, seed, true)
			t.Errorf("seed %d: %s", seed, what)
		}
	})
}
