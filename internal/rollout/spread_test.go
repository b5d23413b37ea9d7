// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func pointers(ranks []uint64) (all []*uint64) {
	for i := range ranks {
		all = append(all, &ranks[i])
	}
	return all
}

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
		before := make([]uint64, len(places))
		for i := range before {
			before[i] = max(1, r.Uint64())
		}
		ranks := slices.Clone(before)
		Spread(places, pointers(ranks))
		order := make([]int, len(places))
		for i := range order {
			order[i] = i
		}
		slices.SortFunc(order, func(a, b int) int { return int(min(ranks[a], 1<<62)>>20) - int(min(ranks[b], 1<<62)>>20) })
		last := map[string]uint64{}
		for _, i := range order {
			place := places[i]
			for other, n := range left {
				if n > left[place] {
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

// TestSpreadBalancesZones replaces 300 machines of three zones, 30 at a time, in a cloud that puts each new one in the zone that has the fewest. Turns take
// so long that they overlap, and no two as long as each other.
func TestSpreadBalancesZones(t *testing.T) {
	const surge = 30
	zones := []string{"a", "b", "c"}
	for seed := range uint64(10) {
		r := rand.New(rand.NewPCG(seed, 11))
		var waiting []string
		machines := map[string]int{}
		for i := range 300 {
			waiting = append(waiting, zones[i%3])
			machines[zones[i%3]]++
		}
		type turn struct {
			place string
			end   int
		}
		var going []turn
		for now := 0; len(waiting)+len(going) > 0; now++ {
			going = slices.DeleteFunc(going, func(t turn) bool {
				if t.end > now {
					return false
				}
				machines[t.place]--
				return true
			})
			ranks := make([]uint64, len(waiting))
			for i := range ranks {
				ranks[i] = max(1, r.Uint64())
			}
			Spread(waiting, pointers(ranks))
			for len(waiting) > 0 && len(going) < surge {
				first := slices.Index(ranks, slices.Min(ranks))
				machines[slices.MinFunc(zones, func(a, b string) int { return machines[a] - machines[b] })]++
				going = append(going, turn{place: waiting[first], end: now + 10 + r.IntN(20)})
				waiting, ranks = slices.Delete(waiting, first, first+1), slices.Delete(ranks, first, first+1)
			}
		}
		fewest, most := min(machines["a"], machines["b"], machines["c"]), max(machines["a"], machines["b"], machines["c"])
		if most > fewest+surge/5 {
			t.Errorf("seed %d: in the end there are %v", seed, machines)
		}
	}
}
