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

// smallHeight is the minimum height of the view, in lines.
const smallHeight = 4

// live repaints a terminal in place, below the existing output.
type live struct {
	out    io.Writer
	size   func() (width, height int)
	colour bool
	// all shows a line for each node.
	all bool
	// rows is the height of the last frame.
	rows int
}

func (l *live) close() {
	if l.rows > 0 {
		_, _ = io.WriteString(l.out, showCursor)
	}
}

func (l *live) show(s *shown, note string, now time.Time) {
	width, height := l.size()
	f := frame(s, now, l.all)
	if len(f) == 0 {
		f.Add(text.Dim.Of("No rollouts yet."))
	}
	var bottom text.Lines
	if note != "" {
		bottom.Add(text.Red.Of(note))
	}
	// The line of the cursor stays free, and so does one line of the earlier output.
	most := max(height-2-len(bottom), smallHeight)
	if hidden := len(f) - most + 1; hidden > 1 {
		f = f[:most-1]
		f.Add(text.Dim.Format("… and %d more lines", hidden))
	}
	// On some terminals a line of full width wraps.
	l.paint(append(f, bottom...), width-1)
}

func (l *live) paint(f text.Lines, width int) {
	var out bytes.Buffer
	if l.rows > 0 {
		fmt.Fprintf(&out, upTo, l.rows)
	} else {
		out.WriteString(hideCursor)
	}
	out.Write(bytes.ReplaceAll(f.Text(width, l.colour), []byte("\n"), []byte(eraseToEnd+"\n")))
	l.rows = len(f)
	out.WriteString(eraseBelow)
	_, _ = l.out.Write(out.Bytes()) // The terminal may be gone.
}
