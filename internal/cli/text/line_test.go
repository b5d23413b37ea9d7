// SPDX-License-Identifier: Apache-2.0

package text_test

import (
	"testing"

	"moult.dev/moult/internal/cli/text"
)

func TestClean(t *testing.T) {
	for in, want := range map[string]string{
		"disk full, 3 µs … 漢":             "disk full, 3 µs … 漢",
		"up\x1b[2A and\x07\r\n\tback\x7f": "up [2A and    back ",
		// The same in one character each: what begins a command to the terminal in 8 bits, and what ends it.
		"\u009b2Jgone\u009d0;title\u009c": " 2Jgone 0;title ",
		"\u0080 to \u009f, not \u00a0":    "  to  , not \u00a0",
		"\x9b2J":                          "\ufffd2J", // No rune at all.
	} {
		if got := text.Clean(in); got != want {
			t.Errorf("%q is %q, want %q", in, got, want)
		}
	}
}
