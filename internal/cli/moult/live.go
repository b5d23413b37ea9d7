// SPDX-License-Identifier: Apache-2.0

package moult

import (
	"bytes"
	"fmt"
	"io"
	"time"

	"moult.dev/moult/internal/cli/text"
)

// ANSI sequences.
const (
	hideCursor = "\x1b[?25l"
	showCursor = "\x1b[?25h"
	eraseToEnd = "\x1b[K" // of the line
	eraseBelow = "\x1b[J"
	upTo       = "\x1b[%dA\r"
)

// smallHeight is the minimum height, in lines.
const smallHeight = 4

// live repaints a terminal in place, below the existing output.
type live struct {
	out    io.Writer
	size   func() (width, height int)
	colour bool
	all    bool
	// rows is the height of the last frame.
	rows int
}

func (l *live) close() {
	if l.rows > 0 {
		_, _ = io.WriteString(l.out, showCursor)
	}
}

func newLive(out io.Writer, size func() (width, height int), colour, all bool) *live {
	return &live{out: out, size: size, colour: colour, all: all}
}

func (l *live) show(s *shown, note string, now time.Time) {
	width, height := l.size()
	width-- // On some terminals a line of full width wraps.
	var bottom text.Lines
	if note != "" {
		bottom.Add(text.Red.Of(note))
	}
	// The cursor's own line stays free, and so does one of what was there before.
	f := frame(s, now, layout{all: l.all, height: max(height-2-len(bottom), smallHeight)})
	if len(s.rollouts) == 0 && len(s.budgets) == 0 {
		f = text.Lines{{text.Dim.Of("No rollouts yet.")}}
	}
	l.paint(append(f, bottom...), width)
}

func (l *live) paint(f text.Lines, width int) {
	var out bytes.Buffer
	if l.rows > 0 {
		fmt.Fprintf(&out, upTo, l.rows)
	} else {
		out.WriteString(hideCursor)
	}
	for _, row := range f {
		row.Write(&out, width, l.colour)
		out.WriteString(eraseToEnd + "\n")
	}
	l.rows = len(f)
	out.WriteString(eraseBelow)
	_, _ = l.out.Write(out.Bytes()) // The terminal may be gone.
}
