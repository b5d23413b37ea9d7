// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"fmt"
	"html"
	"strings"
	"unicode/utf8"
)

// Sizes of a character, and of what is around the text.
const (
	charWidth, lineHeight = 8.4, 19.0
	margin, barHeight     = 18.0, 34.0
)

// colours of what a line, or a bar, begins with, as the live view has them.
var colours = map[rune]string{'✓': "#7bd88f", '▶': "#fce566", '✗': "#fc618d", '·': "#8b888f", '$': "#5ad4e6"}

// Screen returns a picture of a terminal that shows this text.
func Screen(title, text string) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	columns := 0
	for _, l := range lines {
		columns = max(columns, utf8.RuneCountInString(l))
	}
	width, height := float64(columns)*charWidth+2*margin, float64(len(lines))*lineHeight+barHeight+margin
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" role="img" aria-label="%s" font-family="ui-monospace, Menlo, Consolas, monospace" font-size="14">`+"\n", width, height, html.EscapeString(title))
	fmt.Fprintf(&b, `<rect width="%.0f" height="%.0f" rx="8" fill="#222226"/>`+"\n", width, height)
	for i, c := range []string{"#fc618d", "#fce566", "#7bd88f"} {
		fmt.Fprintf(&b, `<circle cx="%.0f" cy="17" r="5.5" fill="%s"/>`+"\n", margin+2+float64(i)*18, c)
	}
	fmt.Fprintf(&b, `<text x="%.0f" y="22" fill="#8b888f" text-anchor="middle">%s</text>`+"\n", width/2, html.EscapeString(title))
	for i, line := range lines {
		y := barHeight + float64(i+1)*lineHeight - 5
		for _, run := range runs(line) {
			fmt.Fprintf(&b, `<text x="%.1f" y="%.0f" fill="%s" xml:space="preserve" textLength="%.1f">%s</text>`+"\n",
				margin+float64(run.at)*charWidth, y, run.colour, float64(utf8.RuneCountInString(run.text))*charWidth, html.EscapeString(run.text))
		}
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// run is text of one colour.
type run struct {
	at           int
	text, colour string
}

// runs divides a line where its colour changes.
func runs(line string) (all []run) {
	colour := "#f7f1ff"
	if first, _ := utf8.DecodeRuneInString(strings.TrimSpace(line)); colours[first] != "" {
		colour = colours[first]
	}
	at := 0
	for _, r := range line {
		c := colour
		switch r {
		case '█':
			c = colours['✓']
		case '▓':
			c = colours['▶']
		case '░':
			c = colours['·']
		case '×':
			c = colours['✗']
		}
		if n := len(all); n > 0 && (all[n-1].colour == c || r == ' ') {
			all[n-1].text += string(r)
		} else {
			all = append(all, run{at, string(r), c})
		}
		at++
	}
	return all
}
