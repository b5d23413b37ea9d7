// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
)

// munge makes a version fit for labels and image tags.
func munge(v string) string { return strings.ReplaceAll(v, "+", "-") }

// isDowngrade reports whether a version is lower than another, as far as that can be told: by the numbers at its
// front, and where these are equal and the rest is alike but for its numbers (such as -k3s1 and -k3s10), by those.
func isDowngrade(from, to string) bool {
	a, errA := version.ParseGeneric(from)
	b, errB := version.ParseGeneric(to)
	if errA != nil || errB != nil {
		return false
	}
	if b.LessThan(a) || a.LessThan(b) {
		return b.LessThan(a)
	}
	numbersA, wordsA := split(from)
	numbersB, wordsB := split(to)
	if wordsA != wordsB {
		return false
	}
	for i := range numbersA {
		if c := compareNumbers(numbersA[i], numbersB[i]); c != 0 {
			return c > 0
		}
	}
	return false
}

// split takes the runs of digits out of a text; in what remains each stands as "#".
func split(text string) (numbers []string, words string) {
	var out strings.Builder
	for i := 0; i < len(text); {
		j := i
		for j < len(text) && '0' <= text[j] && text[j] <= '9' {
			j++
		}
		if j > i {
			numbers = append(numbers, strings.TrimLeft(text[i:j], "0"))
			out.WriteByte('#')
			i = j
			continue
		}
		out.WriteByte(text[i])
		i++
	}
	return numbers, out.String()
}

func compareNumbers(a, b string) int {
	if len(a) != len(b) {
		return len(a) - len(b)
	}
	return strings.Compare(a, b)
}
