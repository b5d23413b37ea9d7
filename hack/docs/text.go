// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"regexp"
	"strings"
)

// prose puts a text on one line. Paragraphs stay apart by a space.
func prose(text string) string { return strings.Join(strings.Fields(text), " ") }

// escape makes a text fit into a cell of a table.
func escape(text string) string {
	return strings.NewReplacer("|", `\|`, "<", "&lt;", "\n", " ").Replace(text)
}

// codes returns a list of words as code.
func codes(words []string) string { return "`" + strings.Join(words, "`, `") + "`" }

var noAnchor = regexp.MustCompile(`[^\p{L}\p{N} _-]`)

// anchor returns the anchor of a heading, as git hosts and the site make it.
func anchor(heading string) string {
	return strings.ReplaceAll(noAnchor.ReplaceAllString(strings.ToLower(heading), ""), " ", "-")
}
