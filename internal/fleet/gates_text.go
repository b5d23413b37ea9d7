// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"slices"
	"strings"
)

// named is how many of many things a message names.
const named = 3

// firstOf joins the first few texts, and counts the others.
func firstOf(texts []string, between string) string {
	shown := texts[:min(len(texts), named)]
	text := strings.Join(shown, between)
	if more := len(texts) - len(shown); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// sentence is about one or several things: "pod a/b is there", "pods a/b, a/c and 3 more are there".
func sentence(noun string, names []string, end string) string {
	slices.Sort(names)
	names = slices.Compact(names)
	if len(names) == 1 {
		return noun + " " + names[0] + " is " + end
	}
	return noun + "s " + firstOf(names, ", ") + " are " + end
}
