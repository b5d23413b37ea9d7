// SPDX-License-Identifier: Apache-2.0

package host

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSplitWords(t *testing.T) {
	for line, test := range map[string]struct {
		want []string
		err  string
	}{
		"":                       {},
		"  \t ":                  {},
		"/bin/systemctl reboot":  {want: []string{"/bin/systemctl", "reboot"}},
		`sh -c "! needs -r"`:     {want: []string{"sh", "-c", "! needs -r"}},
		`a 'b c'd "e f"`:         {want: []string{"a", "b cd", "e f"}},
		`a '' ""`:                {want: []string{"a", "", ""}},
		`a\ b \"c\" '\d'`:        {want: []string{"a b", `"c"`, `\d`}},
		`"a\"b" "\x" "\$y" "\\"`: {want: []string{`a"b`, `\x`, "$y", `\`}},
		"x\ny":                   {want: []string{"x", "y"}},
		`a | b > c; $d *`:        {want: []string{"a", "|", "b", ">", "c;", "$d", "*"}},
		`a "b`:                   {err: "a quote is not closed"},
		`a 'b`:                   {err: "a quote is not closed"},
		`a \`:                    {err: "there is nothing after the last backslash"},
	} {
		got, err := splitWords(line)
		failing(t, err, test.err)
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s: %s", line, diff)
		}
	}
}
