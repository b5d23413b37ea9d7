// SPDX-License-Identifier: Apache-2.0

// Package text writes what people read: lines of pieces that may have colours, cut to the width of a terminal where there
// is one.
package text

import (
	"bytes"
	"fmt"
	"strings"
	"unicode"

	"github.com/mattn/go-runewidth"
)

// Style is how a piece of text looks, by its ANSI number.
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

// Of is a piece of text in this style.
func (s Style) Of(text string) Piece { return Piece{Text: text, Style: s} }

// Format is a piece of formatted text in this style.
func (s Style) Format(format string, args ...any) Piece { return s.Of(fmt.Sprintf(format, args...)) }

// Line is a row of the screen.
type Line []Piece

// Width is how many columns the line takes up.
func (l Line) Width() (columns int) {
	for _, p := range l {
		columns += runewidth.StringWidth(Clean(p.Text))
	}
	return columns
}

// Write adds the line, cut to so many columns; 0 does not cut.
func (l Line) Write(to *bytes.Buffer, width int, colour bool) {
	cut := width > 0 && l.Width() > width
	room := width
	for _, p := range l {
		text := Clean(p.Text)
		if n := runewidth.StringWidth(text); cut && n >= room {
			text, room = runewidth.Truncate(text+" ", room, "…"), 0
		} else {
			room -= n
		}
		if colour && p.Style != Plain {
			text = "\x1b[" + string(p.Style) + "m" + text + "\x1b[0m"
		}
		to.WriteString(text)
		if cut && room == 0 {
			return
		}
	}
}

// Trimmed is the line without blanks at its end.
func (l Line) Trimmed() Line {
	for len(l) > 0 {
		last := &l[len(l)-1]
		if last.Text = strings.TrimRight(last.Text, " "); last.Text != "" {
			break
		}
		l = l[:len(l)-1]
	}
	return l
}

// Clean keeps what others wrote, such as messages, from moving the cursor: each control character becomes a blank.
func Clean(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
}

// Fill is text with blanks up to this width.
func Fill(text string, width int) string { return runewidth.FillRight(Clean(text), width) }

// Width is how many columns the text takes up.
func Width(text string) int { return runewidth.StringWidth(Clean(text)) }

// Lines is what one screen shows.
type Lines []Line //nolint:recvcheck // Add alone changes them.

// Add adds a line of these pieces.
func (all *Lines) Add(pieces ...Piece) { *all = append(*all, Line(pieces).Trimmed()) }

// Text is the lines, each cut to so many columns; 0 does not cut.
func (all Lines) Text(width int, colour bool) []byte {
	var out bytes.Buffer
	for _, l := range all {
		l.Write(&out, width, colour)
		out.WriteByte('\n')
	}
	return out.Bytes()
}
