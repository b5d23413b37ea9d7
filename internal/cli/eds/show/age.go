// SPDX-License-Identifier: Apache-2.0

package show

import (
	"fmt"
	"time"
)

// units of an age, the largest first. A year has 365 days.
var units = []struct {
	name string
	of   time.Duration
}{
	{"year", 365 * 24 * time.Hour}, {"week", 7 * 24 * time.Hour}, {"day", 24 * time.Hour}, {"hour", time.Hour}, {"minute", time.Minute},
	{"second", time.Second}, {"millisecond", time.Millisecond}, {"microsecond", time.Microsecond},
}

// ageText is a duration in its largest unit, rounded down: "16 seconds", "1 day".
func ageText(d time.Duration) string {
	for _, u := range units {
		switch n := int64(d / u.of); n {
		case 0:
		case 1, -1:
			return fmt.Sprintf("%d %s", n, u.name)
		default:
			return fmt.Sprintf("%d %ss", n, u.name)
		}
	}
	return "0 seconds"
}
