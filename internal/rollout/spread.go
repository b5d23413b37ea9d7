// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
	"slices"
)

// Spread changes the ranks of nodes so that the place with the most remaining nodes is next. Within a place the order of
// the ranks stays. Each rank belongs to the node with the same index. A place is, for example, a zone of a scale set.
// Clouds add machines in the zone with the fewest machines, so zones that finish early would unbalance the scale set. Nodes
// in a turn are excluded. Their place has one node fewer only after the turn, and would attract every further start until
// then.
func Spread(places []string, ranks []uint64) {
	rows := map[string][]int{}
	for i, place := range places {
		rows[place] = append(rows[place], i)
	}
	for _, row := range rows {
		slices.SortFunc(row, func(a, b int) int { return cmp.Compare(ranks[b], ranks[a]) })
		for left, i := range row {
			// The more nodes of its place remain after it, the earlier it starts.
			ranks[i] = uint64(len(ranks)-left)<<40 | ranks[i]>>24
		}
	}
}
