// SPDX-License-Identifier: Apache-2.0

package status

import (
	"bytes"
	"strings"
	"unicode/utf8"
)

// style is how a piece of text looks, by its ANSI number.
type style string

const (
	plain  style = ""
	bold   style = "1"
	dim    style = "2"
	red    style = "31"
	green  style = "32"
	yellow style = "33"
)

// piece is text in one style.
type piece struct {
	text  string
	style style
}

// line is a row of the screen.
type line []piece

func (l line) len() (n int) {
	for _, p := range l {
		n += utf8.RuneCountInString(p.text)
	}
	return n
}

// write adds the line, cut to so many columns; 0 does not cut.
func (l line) write(to *bytes.Buffer, width int, colour bool) {
	cut := width > 0 && l.len() > width
	room := width - 1 // For what says that it is cut.
	for _, p := range l {
		text := clean(p.text)
		if n := utf8.RuneCountInString(text); cut && n > room {
			text, room = string([]rune(text)[:room])+"…", 0
		} else {
			room -= n
		}
		if colour && p.style != plain {
			text = "\x1b[" + string(p.style) + "m" + text + "\x1b[0m"
		}
		to.WriteString(text)
		if cut && room == 0 {
			return
		}
	}
}

// clean keeps what others wrote, such as messages, from moving the cursor.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == '\x7f' {
			return ' '
		}
		return r
	}, text)
}

// lines is what one screen shows.
type lines []line

func (all lines) text(width int, colour bool) []byte {
	var out bytes.Buffer
	for _, l := range all {
		l.write(&out, width, colour)
		out.WriteByte('\n')
	}
	return out.Bytes()
}
