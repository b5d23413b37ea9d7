// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// named is how many items a message names.
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

// longest limits text of other programs in a message.
const longest = 200

// short shortens a text that is too long.
func short(text string) string {
	if utf8.RuneCountInString(text) <= longest {
		return text
	}
	return string([]rune(text)[:longest]) + "…"
}
