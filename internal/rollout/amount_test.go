// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"testing"

	"k8s.io/apimachinery/pkg/util/intstr"
)

func TestAmount(t *testing.T) {
	for _, tc := range []struct {
		from                 intstr.IntOrString
		total                int
		atLeastOne, down, up int
	}{
		{intstr.FromInt32(0), 10, 0, 0, 0},
		{intstr.FromInt32(3), 10, 3, 3, 3},
		{intstr.FromInt32(30), 10, 30, 30, 30},
		{intstr.FromString("0%"), 10, 0, 0, 0},
		{intstr.FromString("1%"), 10, 1, 0, 1},
		{intstr.FromString("10%"), 10, 1, 1, 1},
		{intstr.FromString("10%"), 19, 1, 1, 2},
		{intstr.FromString("10%"), 20, 2, 2, 2},
		{intstr.FromString("33%"), 10, 3, 3, 4},
		{intstr.FromString("100%"), 7, 7, 7, 7},
		{intstr.FromString("50%"), 1, 1, 0, 1},
		{intstr.FromString("50%"), 0, 1, 0, 0},
		{intstr.FromString("99%"), 10_000, 9900, 9900, 9900},
	} {
		a, err := ParseAmount(tc.from)
		if err != nil {
			t.Fatal(err)
		}
		if a.AtLeastOne(tc.total) != tc.atLeastOne || a.Down(tc.total) != tc.down || a.Up(tc.total) != tc.up {
			t.Errorf("%s of %d: at least one %d, down %d, up %d", a, tc.total, a.AtLeastOne(tc.total), a.Down(tc.total), a.Up(tc.total))
		}
		if a.String() != tc.from.String() {
			t.Errorf("%s is told as %s", tc.from.String(), a)
		}
	}
}

func TestParseAmountErrors(t *testing.T) {
	for want, from := range map[string]intstr.IntOrString{
		"-1 is negative": intstr.FromInt32(-1),
		`"many" is neither a count nor a percentage from 0% to 100%`: intstr.FromString("many"),
		`"101%" is neither a count nor a percentage from 0% to 100%`: intstr.FromString("101%"),
		`"-1%" is neither a count nor a percentage from 0% to 100%`:  intstr.FromString("-1%"),
		`"3" is neither a count nor a percentage from 0% to 100%`:    intstr.FromString("3"),
		`"" is neither a count nor a percentage from 0% to 100%`:     intstr.FromString(""),
	} {
		if _, err := ParseAmount(from); err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", from.String(), err, want)
		}
	}
}
