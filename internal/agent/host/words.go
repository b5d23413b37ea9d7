// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"strings"
)

// splitWords splits a line as a shell does, with its quotes and backslashes, and nothing more of it: no variables, no patterns,
// no pipes.
func splitWords(line string) ([]string, error) {
	var words []string
	var word strings.Builder
	begun := false
	var quote rune
	escaped := false
	for _, r := range line {
		switch {
		case escaped:
			// Within double quotes a backslash stands for itself, but before these.
			if quote == '"' && !strings.ContainsRune("$`\"\\\n", r) {
				word.WriteRune('\\')
			}
			word.WriteRune(r)
			escaped = false
		case quote != '\'' && r == '\\':
			escaped, begun = true, true
		case quote != 0:
			if r == quote {
				quote = 0
			} else {
				word.WriteRune(r)
			}
		case r == '\'' || r == '"':
			quote, begun = r, true
		case strings.ContainsRune(" \t\r\n", r):
			if begun {
				words = append(words, word.String())
				word.Reset()
				begun = false
			}
		default:
			word.WriteRune(r)
			begun = true
		}
	}
	switch {
	case quote != 0:
		return nil, errors.New("a quote is not closed")
	case escaped:
		return nil, errors.New("there is nothing after the last backslash")
	}
	if begun {
		words = append(words, word.String())
	}
	return words, nil
}
