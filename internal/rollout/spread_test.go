// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestSpread takes nodes one after the other by their ranks: never is there a place with two more left than another that has any.
func TestSpread(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	for range 200 {
		left := map[string]int{}
		var places []string
		for range r.IntN(60) {
			place := string(rune('a' + r.IntN(4)))
			places = append(places, place)
			left[place]++
		}
		going := map[string]int{}
		for range r.IntN(20) {
			place := string(rune('a' + r.IntN(4)))
			going[place]++
		}
		for place := range left {
			left[place] += going[place]
		}
		before := make([]uint64, len(places))
		for i := range before {
			before[i] = max(1, r.Uint64())
		}
		ranks := slices.Clone(before)
		Spread(places, ranks, going)
		order := make([]int, len(places))
		for i := range order {
			order[i] = i
		}
		slices.SortFunc(order, func(a, b int) int { return int(min(ranks[a], 1<<62)>>20) - int(min(ranks[b], 1<<62)>>20) })
		last := map[string]uint64{}
		for _, i := range order {
			place := places[i]
			for other, n := range left {
				if n > left[place] && n > going[other] {
					t.Fatalf("a node of %s goes, of which %d are left, and of %s there are %d", place, left[place], other, n)
				}
			}
			left[place]--
			if before[i] < last[place] {
				t.Fatalf("in %s a node goes before one of a lower rank", place)
			}
			last[place] = before[i]
		}
	}
}
