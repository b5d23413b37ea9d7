// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// named is how many of many things a message names.
const named = 3

// firstOf joins the first few texts, and counts the others.
func firstOf(texts []string, between string) string {
	shown := make([]string, 0, named)
	for _, text := range texts[:min(len(texts), named)] {
		shown = append(shown, short(text))
	}
	text := strings.Join(shown, between)
	if more := len(texts) - len(shown); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// longest bounds what a message repeats of what others have written.
const longest = 200

// short is a text, cut where it is too long.
func short(text string) string {
	if utf8.RuneCountInString(text) <= longest {
		return text
	}
	return string([]rune(text)[:longest]) + "…"
}

// sentence is about one or several things: "pod a/b is there", "pods a/b, a/c and 3 more are there".
func sentence(noun string, names []string, end string) string {
	slices.Sort(names)
	names = slices.Compact(names)
	if len(names) == 1 {
		return noun + " " + short(names[0]) + " is " + end
	}
	return noun + "s " + firstOf(names, ", ") + " are " + end
}
