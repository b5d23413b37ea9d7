// SPDX-License-Identifier: Apache-2.0

package moult

import (
	"math"
	"slices"

	"moult.dev/moult/internal/cli/text"
)

// layout says how much is shown.
type layout struct {
	// all shows a line for each node, and not only for those in a turn or failed.
	all bool
	// height bounds the lines; 0 is no bound.
	height int
}

// block is one rollout's part of a frame.
type block struct {
	header text.Lines
	groups []group
}

// group is lines of one kind. rest makes the line that counts the lines that don't fit.
type group struct {
	// minor is true for lines that are cut first: nodes that wait or are updated.
	minor bool
	lines text.Lines
	rest  func(hidden int) text.Line
	// reason and message are what the nodes of the group wait for.
	reason, message string
}

// fit chooses which lines are shown. Without a height, minor lines are only counted unless l.all is set.
func fit(blocks []block, l layout) text.Lines {
	major, minor := math.MaxInt, 1
	if l.all {
		minor = math.MaxInt
	}
	if l.height == 0 {
		return join(blocks, major, minor)
	}
	major, minor = l.height, l.height
	all := join(blocks, major, minor)
	for len(all) > l.height && major > 1 {
		if minor > 1 {
			minor--
		} else {
			major--
		}
		all = join(blocks, major, minor)
	}
	if len(all) > l.height {
		hidden := len(all) - l.height + 1
		all = append(all[:max(0, l.height-1)], text.Line{text.Dim.Format("… and %d more lines", hidden)})
	}
	return all
}

// join concatenates the blocks. major and minor bound the lines of a group.
func join(blocks []block, major, minor int) text.Lines {
	var all text.Lines
	for i := range blocks {
		if i > 0 {
			all.Add()
		}
		all = slices.Concat(all, blocks[i].header)
		for j := range blocks[i].groups {
			g, most := &blocks[i].groups[j], major
			if g.minor {
				most = minor
			}
			if len(g.lines) <= most {
				all = append(all, g.lines...)
				continue
			}
			all = append(append(all, g.lines[:most-1]...), g.rest(len(g.lines)-most+1))
		}
	}
	return all
}
