// SPDX-License-Identifier: Apache-2.0

package text

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
)

// Or lists words as "a", "a or b", or "a, b or c".
func Or(words []string) string {
	n := len(words) - 1
	if n <= 0 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:n], ", ") + " or " + words[n]
}

// Some lists the first n words, and counts the others: "a, b and 2 more".
func Some(n int, words []string, separator string) string {
	if len(words) <= n {
		return strings.Join(words, separator)
	}
	return fmt.Sprintf("%s and %d more", strings.Join(words[:n], separator), len(words)-n)
}

// When returns formatted text if the condition holds; else nothing.
func When(holds bool, format string, args ...any) string {
	if !holds {
		return ""
	}
	return fmt.Sprintf(format, args...)
}

// Count returns "1 node" or "2 nodes".
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// JoinNonEmpty joins the non-empty parts.
func JoinNonEmpty(separator string, parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(part string) bool { return part == "" }), separator)
}

// Since returns the short form of the time since t: "3m"; empty if t or now is unknown.
func Since(t *metav1.Time, now time.Time) string {
	if t.IsZero() || now.IsZero() {
		return ""
	}
	return duration.HumanDuration(max(0, now.Sub(t.Time)))
}

// For returns " for 3m"; empty if t or now is unknown.
func For(t *metav1.Time, now time.Time) string {
	since := Since(t, now)
	return When(since != "", " for %s", since)
}
