// SPDX-License-Identifier: Apache-2.0

package status

import "moult.dev/moult/internal/cli/text"

// layout says how much is shown.
type layout struct {
	// all shows a line for each node, and not only for those in a turn or failed.
	all bool
	// height bounds the lines; 0 is no bound.
	height int
}

// rank orders groups of lines by how much they matter.
type rank int

const (
	rankFailed rank = iota
	rankUpdating
	rankBudget
	rankWaiting
	rankHolder
	rankUpdated
	ranks
)

// block is one rollout's part of a frame.
type block struct {
	header text.Lines
	groups []group
}

// group is lines of one kind. Those that don't fit are counted in one line, which rest makes.
type group struct {
	rank  rank
	lines text.Lines
	rest  func(hidden int) text.Line
	shown int
	// reason and message are what the nodes of the group wait for.
	reason, message string
}

// height is how many rows the group takes up.
func (g *group) height() int {
	if g.shown < len(g.lines) {
		return g.shown + 1
	}
	return g.shown
}

// fit chooses which lines are shown.
func fit(blocks []block, l layout) text.Lines {
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
	room := l.height - max(0, len(blocks)-1) // A blank line between blocks.
	for i := range blocks {
		room -= len(blocks[i].header)
	}
	for _, g := range order {
		if l.height == 0 && (l.all || g.rank <= rankBudget) || len(g.lines) == 1 {
			g.shown = len(g.lines)
		}
		room -= g.height()
	}
	// What matters most gets its lines first. The last line of a group takes the place of the one that counts.
	for _, g := range order {
		if more := len(g.lines) - 1; g.shown < len(g.lines) && room > 0 {
			if room >= more {
				g.shown, room = len(g.lines), room-more
			} else {
				g.shown, room = room, 0
			}
		}
	}
	all := join(blocks)
	if l.height > 0 && len(all) > l.height {
		hidden := len(all) - l.height + 1
		all = append(all[:max(0, l.height-1)], text.Line{text.Dim.Format("… and %d more lines", hidden)})
	}
	return all
}

func join(blocks []block) text.Lines {
	var all text.Lines
	for i := range blocks {
		if i > 0 {
			all.Add()
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
