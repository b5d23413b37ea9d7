// SPDX-License-Identifier: Apache-2.0

// Package text writes what people read: lines of pieces that may have colours, cut to the width of a terminal where there
// is one.
package text

import (
	"bytes"
	"strings"
	"unicode"
	"unicode/utf8"
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

// Line is a row of the screen.
type Line []Piece

// Len is how many columns the line takes up.
func (l Line) Len() (n int) {
	for _, p := range l {
		n += utf8.RuneCountInString(p.Text)
	}
	return n
}

// Write adds the line, cut to so many columns; 0 does not cut.
func (l Line) Write(to *bytes.Buffer, width int, colour bool) {
	cut := width > 0 && l.Len() > width
	room := width - 1 // For what says that it is cut.
	for _, p := range l {
		text := Clean(p.Text)
		if n := utf8.RuneCountInString(text); cut && n > room {
			text, room = string([]rune(text)[:room])+"…", 0
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

// Clean keeps what others wrote, such as messages, from moving the cursor: each control character is a blank.
func Clean(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
}

// Lines is what one screen shows.
type Lines []Line

// Text is the lines, each cut to so many columns; 0 does not cut.
func (all Lines) Text(width int, colour bool) []byte {
	var out bytes.Buffer
	for _, l := range all {
		l.Write(&out, width, colour)
		out.WriteByte('\n')
	}
	return out.Bytes()
}

// Page is lines that are being written.
type Page struct {
	Lines Lines
}

// Add adds a line of these pieces.
func (p *Page) Add(pieces ...Piece) { p.Lines = append(p.Lines, Line(pieces).Trimmed()) }
