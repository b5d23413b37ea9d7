// SPDX-License-Identifier: Apache-2.0

package status

import (
	"bytes"
	"fmt"
	"io"
	"time"
)

// ANSI sequences.
const (
	hideCursor  = "\x1b[?25l"
	showCursor  = "\x1b[?25h"
	eraseToEnd  = "\x1b[K" // of the line
	eraseBelow  = "\x1b[J"
	upTo        = "\x1b[%dA\r"
	smallHeight = 4
)

// live repaints a terminal in place, below what is there already.
type live struct {
	out     io.Writer
	size    func() (width, height int)
	colour  bool
	detail  detail
	history *history
	// painted holds how long each line on the screen is.
	painted []int
}

func newLive(out io.Writer, size func() (width, height int), colour, wide bool) *live {
	l := &live{out: out, size: size, colour: colour, detail: showFitting, history: newHistory()}
	if wide {
		l.detail = showAllFitting
	}
	return l
}

func (l *live) show(s *shown, note string, now time.Time) {
	l.history.note(s.rollouts, now)
	width, height := l.size()
	width-- // A line as wide as the terminal would make some of them go on to the next.
	var bottom lines
	if note != "" {
		bottom = lines{{red.Of(note)}}
	}
	// The cursor's own line stays free, and so does one of what was there before.
	f := frame(s, l.history, now, l.detail, max(height-2-len(bottom), smallHeight))
	if len(s.rollouts) == 0 && len(s.budgets) == 0 {
		f = lines{{dim.Of("No rollouts yet.")}}
	}
	l.paint(append(f, bottom...), width)
}

func (l *live) paint(f lines, width int) {
	var out bytes.Buffer
	if l.painted == nil {
		out.WriteString(hideCursor)
	}
	if rows := l.rows(width); rows > 0 {
		fmt.Fprintf(&out, upTo, rows)
	}
	l.painted = make([]int, 0, len(f))
	for _, row := range f {
		row.Write(&out, width, l.colour)
		out.WriteString(eraseToEnd + "\n")
		l.painted = append(l.painted, min(row.Len(), width))
	}
	out.WriteString(eraseBelow)
	_, _ = l.out.Write(out.Bytes()) // A terminal that is gone has nobody to tell.
}

// rows is how many rows the last frame takes up now: where the terminal became narrower its lines have wrapped.
func (l *live) rows(width int) (rows int) {
	for _, n := range l.painted {
		rows += 1 + max(0, n-1)/max(width+1, 1)
	}
	return rows
}

func (l *live) close() {
	if l.painted != nil {
		_, _ = io.WriteString(l.out, showCursor)
	}
}
