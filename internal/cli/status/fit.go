// SPDX-License-Identifier: Apache-2.0

package status

import "fmt"

// detail says how much of a rollout is shown.
type detail int

const (
	// showCounted shows a line for each node in a turn or failed, and counts the others.
	showCounted detail = iota
	// showAll shows a line for each node.
	showAll
	// showFitting shows as many lines as fit the height.
	showFitting
	// showAllFitting shows of what showAll does as much as fits the height.
	showAllFitting
)

// fits reports whether there is a height to fit.
func (d detail) fits() bool { return d == showFitting || d == showAllFitting }

// wide reports whether all that there is to say is to be shown.
func (d detail) wide() bool { return d == showAll || d == showAllFitting }

// rank orders groups of lines by how much they matter.
type rank int

const (
	rankFailed rank = iota
	rankTurning
	rankBudget
	rankWaiting
	rankHolder
	rankUpdated
	ranks
)

// block is one rollout's part of a frame.
type block struct {
	header []line
	groups []group
}

// group is lines of one kind. Those that don't fit are counted in one line, which rest makes.
type group struct {
	rank  rank
	lines []line
	rest  func(hidden int) line
	shown int

	// reason and message are what the nodes of the group wait for, if they do.
	reason, message string
}

// rows is how many rows the group takes up.
func (g *group) rows() int {
	if g.shown < len(g.lines) {
		return g.shown + 1
	}
	return g.shown
}

// fit chooses which lines are shown.
func fit(blocks []block, d detail, height int) lines {
	var order []*group
	for r := range ranks {
		for i := range blocks {
			for j := range blocks[i].groups {
				if g := &blocks[i].groups[j]; g.rank == r && len(g.lines) > 0 {
					order = append(order, g)
				}
			}
		}
	}
	for _, g := range order {
		if d == showAll || d == showCounted && g.rank <= rankBudget || len(g.lines) == 1 {
			g.shown = len(g.lines)
		}
	}
	if d.fits() {
		room := height - gaps(blocks)
		for i := range blocks {
			room -= len(blocks[i].header)
		}
		for _, g := range order {
			room -= g.rows()
		}
		// What matters most gets its lines first. The last line of a group takes the place of the one that counts.
		for _, g := range order {
			if g.shown == len(g.lines) || room <= 0 {
				continue
			}
			if n := len(g.lines); room >= n-1 {
				g.shown, room = n, room-(n-1)
			} else {
				g.shown, room = room, 0
			}
		}
	}
	all := assemble(blocks)
	if d.fits() && len(all) > height {
		hidden := len(all) - height + 1
		all = append(all[:max(0, height-1)], line{dim.Of(fmt.Sprintf("… and %d more lines", hidden))})
	}
	return all
}

// gaps is how many blank lines part the blocks.
func gaps(blocks []block) int { return max(0, len(blocks)-1) }

func assemble(blocks []block) lines {
	var all lines
	for i := range blocks {
		if i > 0 {
			all = append(all, nil)
		}
		all = append(all, blocks[i].header...)
		for j := range blocks[i].groups {
			g := &blocks[i].groups[j]
			all = append(all, g.lines[:g.shown]...)
			if hidden := len(g.lines) - g.shown; hidden > 0 {
				all = append(all, g.rest(hidden))
			}
		}
	}
	return all
}
