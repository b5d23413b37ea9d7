// SPDX-License-Identifier: Apache-2.0

// Package text formats output for people: lines of pieces that may have colours, cut to the width of a terminal.
package text

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"unicode"

	"github.com/mattn/go-runewidth"
	"golang.org/x/term"
)

// Style is the look of a piece of text, as an ANSI number.
type Style string

// The styles.
const (
	Plain  Style = ""
	Bold   Style = "1"
	Dim    Style = "2"
	Red    Style = "31"
	Green  Style = "32"
	Yellow Style = "33"
)

// Piece is text in one style.
type Piece struct {
	Text  string
	Style Style
}

// Of returns a piece of text in this style.
func (s Style) Of(text string) Piece { return Piece{Text: text, Style: s} }

// Format returns a piece of formatted text in this style.
func (s Style) Format(format string, args ...any) Piece { return s.Of(fmt.Sprintf(format, args...)) }

// When returns formatted text in this style if the condition holds; else nothing.
func (s Style) When(holds bool, format string, args ...any) Piece {
	return s.Of(When(holds, format, args...))
}

// Line is one line of output.
type Line []Piece

// Width returns how many columns the line needs.
func (l Line) Width() (columns int) {
	for _, p := range l {
		columns += Width(p.Text)
	}
	return columns
}

// write writes the line without blanks at its end, cut to this width; 0 does not cut.
func (l Line) write(to *bytes.Buffer, width int, colour bool) {
	l = slices.Clone(l)
	for i, p := range slices.Backward(l) {
		if l[i].Text = strings.TrimRight(p.Text, " "); l[i].Text != "" {
			break
		}
	}
	cut := width > 0 && l.Width() > width
	room := width
	for _, p := range l {
		text := Clean(p.Text)
		if n := Width(text); cut && n >= room {
			text, room = runewidth.Truncate(text+" ", room, "…"), 0
		} else {
			room -= n
		}
		if colour && p.Style != Plain && text != "" {
			text = "\x1b[" + string(p.Style) + "m" + text + "\x1b[0m"
		}
		to.WriteString(text)
		if cut && room == 0 {
			return
		}
	}
}

// Clean replaces each control character with a blank, so that messages of other programs can't move the cursor.
func Clean(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
}

// Fill adds blanks to text up to this width.
func Fill(text string, width int) string { return runewidth.FillRight(Clean(text), width) }

// Width returns how many columns the text needs.
func Width(text string) int { return runewidth.StringWidth(Clean(text)) }

// Lines is output of several lines.
type Lines []Line //nolint:recvcheck // Only Add and AddWhen change them.

// Add adds a line of these pieces.
func (all *Lines) Add(pieces ...Piece) { *all = append(*all, pieces) }

// AddWhen adds a line of these pieces if the condition holds.
func (all *Lines) AddWhen(holds bool, pieces ...Piece) {
	if holds {
		all.Add(pieces...)
	}
}

// Text returns the lines, each cut to this width; 0 does not cut.
func (all Lines) Text(width int, colour bool) []byte {
	var out bytes.Buffer
	for _, l := range all {
		l.write(&out, width, colour)
		out.WriteByte('\n')
	}
	return out.Bytes()
}

// Terminal is what a stream writes to.
type Terminal struct {
	fd int
	// Live is true if written text can be overwritten.
	Live bool
	// Colour is true if colours are shown.
	Colour bool
}

// TerminalOf returns the terminal of a stream. Only a terminal has colours, unless NO_COLOR is set.
func TerminalOf(out io.Writer) Terminal {
	f, ok := out.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return Terminal{}
	}
	live := os.Getenv("TERM") != "dumb"
	return Terminal{fd: int(f.Fd()), Live: live, Colour: live && os.Getenv("NO_COLOR") == ""}
}

// Size returns the current size, or a default if it is unknown.
func (t Terminal) Size() (width, height int) {
	width, height, err := term.GetSize(t.fd)
	if err != nil || width <= 0 || height <= 0 {
		return 80, 24
	}
	return width, height
}
