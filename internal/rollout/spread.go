// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
	"slices"
)

// Spread changes the ranks of nodes so that the place goes next that has the most of them left, and within a place the order is that of the
// ranks. Places are such as a zone of a scale set: a cloud that chooses the zones of new machines puts them where there are fewest, old and new together, so
// that zones would be out of balance at the end if one were done much before the others. The ranks are those of the nodes with the same index. Going says
// how many more there are of a place whose turn has begun and that have not gone yet: they are left as long.
func Spread(places []string, ranks []uint64, going map[string]int) {
	rows := map[string][]int{}
	for i, place := range places {
		rows[place] = append(rows[place], i)
	}
	most := len(ranks)
	for _, n := range going {
		most += n
	}
	for place, row := range rows {
		slices.SortFunc(row, func(a, b int) int { return cmp.Compare(ranks[b], ranks[a]) })
		for left, i := range row {
			// So many of its place are left when it has gone: the more, the sooner it goes.
			ranks[i] = uint64(most-left-going[place])<<40 | ranks[i]>>24
		}
	}
}
