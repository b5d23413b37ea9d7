// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
	"slices"
)

// Spread changes the ranks of nodes so that the place goes next that has the most of them left, and within a place the order is that of the
// ranks. Places are such as a zone of a scale set: a cloud that chooses the zones of new machines puts them where there are fewest, old and new together, so
// that zones would be out of balance at the end if one were done much before the others. The ranks are those of the nodes with the same index.
// Nodes whose turn has begun are not among them, although they are there still: which place has most of those changes with every one that goes, and
// whoever followed it would begin all turns of one place for as long as one turn takes.
func Spread(places []string, ranks []uint64) {
	rows := map[string][]int{}
	for i, place := range places {
		rows[place] = append(rows[place], i)
	}
	for _, row := range rows {
		slices.SortFunc(row, func(a, b int) int { return cmp.Compare(ranks[b], ranks[a]) })
		for left, i := range row {
			// So many of its place are left when it has gone: the more, the sooner it goes.
			ranks[i] = uint64(len(ranks)-left)<<40 | ranks[i]>>24
		}
	}
}
