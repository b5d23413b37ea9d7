// SPDX-License-Identifier: Apache-2.0

package table

import (
	"strconv"
	"time"
)

// units of an age, the largest first. A year has 365 days.
var units = []struct {
	name string
	of   time.Duration
}{
	{"year", 365 * 24 * time.Hour},
	{"week", 7 * 24 * time.Hour},
	{"day", 24 * time.Hour},
	{"hour", time.Hour},
	{"minute", time.Minute},
	{"second", time.Second},
	{"millisecond", time.Millisecond},
	{"microsecond", time.Microsecond},
}

// Age is a duration in its largest unit, rounded down: "16 seconds", "1 day".
func Age(d time.Duration) string {
	sign := ""
	if d < 0 {
		sign, d = "-", -d
	}
	for _, u := range units {
		switch n := int64(d / u.of); {
		case n == 1:
			return sign + "1 " + u.name
		case n > 1:
			return sign + strconv.FormatInt(n, 10) + " " + u.name + "s"
		}
	}
	return "0 seconds"
}
