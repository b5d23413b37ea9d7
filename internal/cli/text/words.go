// SPDX-License-Identifier: Apache-2.0

package text

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
)

// Or lists words as "a", "a or b", or "a, b or c".
func Or(words []string) string { return list(words, " or ") }

// And lists words as "a", "a and b", or "a, b and c".
func And(words []string) string { return list(words, " and ") }

func list(words []string, last string) string {
	n := len(words) - 1
	if n <= 0 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:n], ", ") + last + words[n]
}

// Some is the first n words, and how many more there are: "a, b and 2 more".
func Some(n int, words []string, separator string) string {
	if len(words) <= n {
		return strings.Join(words, separator)
	}
	return fmt.Sprintf("%s and %d more", strings.Join(words[:n], separator), len(words)-n)
}

// Count is "1 node" or "2 nodes".
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// JoinSet joins the parts that are not empty.
func JoinSet(separator string, parts ...string) string {
	var set []string
	for _, p := range parts {
		if p != "" {
			set = append(set, p)
		}
	}
	return strings.Join(set, separator)
}

// Since is a duration up to now in few letters; empty when the time is not known.
func Since(t *metav1.Time, now time.Time) string {
	if t == nil || t.IsZero() {
		return ""
	}
	return duration.HumanDuration(max(0, now.Sub(t.Time)))
}

// For is " for 3m"; empty when the time is not known.
func For(t *metav1.Time, now time.Time) string {
	if t == nil || t.IsZero() {
		return ""
	}
	return " for " + Since(t, now)
}
