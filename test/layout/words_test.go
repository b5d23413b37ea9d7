// SPDX-License-Identifier: Apache-2.0

package layout

import (
	"strings"
	"testing"
)

// wordLimits are the most words that pages may have. The longest prefix of a page's name counts.
var wordLimits = map[string]int{"README.md": 900, "docs/moving-from/": 700, "docs/operations/security.md": 1500, "docs/performance.md": 2000, "docs/": 1600}

// allWords is how many words all pages that people write may have together.
const allWords = 30000

// TestWords keeps the documentation short. Pages that are generated do not count.
func TestWords(t *testing.T) {
	sum := 0
	for _, page := range pages(t) {
		if strings.HasPrefix(page, "docs/reference/") || strings.HasPrefix(page, "docs/walkthroughs/") {
			continue
		}
		n, longest := len(strings.Fields(read(t, page))), ""
		sum += n
		for prefix := range wordLimits {
			if strings.HasPrefix(page, prefix) && len(prefix) > len(longest) {
				longest = prefix
			}
		}
		if longest != "" && n > wordLimits[longest] {
			t.Errorf("%s has %d words, and %d are enough", page, n, wordLimits[longest])
		}
	}
	if sum > allWords {
		t.Errorf("all pages have %d words, and %d are enough", sum, allWords)
	}
}
