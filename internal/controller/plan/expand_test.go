// SPDX-License-Identifier: Apache-2.0

package plan

import "testing"

// The cases are those in which an expansion by hand easily differs from Kubernetes' own.
func TestExpand(t *testing.T) {
	values := map[string]string{"A": "one", "B": "two", "EMPTY": "", "NESTED": "$(A)", "A B": "with a blank", "$A": "with an operator"}
	for text, want := range map[string]string{
		"":               "",
		"plain":          "plain",
		"$(A)":           "one",
		"$(A)$(B)":       "onetwo",
		"-$(A)-$(B)-":    "-one-two-",
		"x$(EMPTY)y":     "xy",
		"$(NESTED)":      "$(A)",
		"$(UNKNOWN)":     "$(UNKNOWN)",
		"$()":            "$()",
		"$(A B)":         "with a blank",
		"$($A)":          "with an operator",
		"$$(A)":          "$(A)",
		"$$$(A)":         "$one",
		"$$$$(A)":        "$$(A)",
		"$$$$$(A)":       "$$one",
		"$$A":            "$A",
		"$A":             "$A",
		"${A}":           "${A}",
		"$(A":            "$(A",
		"$(A$(B)":        "$(A$(B)",
		"$(A$(B))":       "$(A$(B))",
		"$(A)$(":         "one$(",
		"$($($(":         "$($($(",
		"--$($($--":      "--$($($--",
		"(A)":            "(A)",
		"$A)":            "$A)",
		"$":              "$",
		"$$":             "$",
		"$$$":            "$$",
		"x$":             "x$",
		"$(A)$":          "one$",
		`\$(A)`:          `\one`,
		"$£$(A)":         "$£one",
		"$(é)":           "$(é)",
		"$(A)\n$(B)":     "one\ntwo",
		"$(UNKNOWN)$(A)": "$(UNKNOWN)one",
	} {
		if got := expand(text, values); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}
