// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"fmt"
	"slices"
	"strings"

	"moult.dev/moult/internal/drain"
)

// onTimeout is the value of --on-timeout. Empty: the flag is not given.
type onTimeout drain.OnTimeout

// ends are the values that there are.
func ends() []string {
	return []string{string(drain.HaltOnTimeout), string(drain.SkipOnTimeout), string(drain.ForceOnTimeout)}
}

// String is the value.
func (o *onTimeout) String() string { return string(*o) }

// Type names the kind of value in the usage text.
func (o *onTimeout) Type() string { return "string" }

// Set reads the value.
func (o *onTimeout) Set(s string) error {
	if s != "" && !slices.Contains(ends(), s) {
		return fmt.Errorf(`must be "%s"`, strings.Join(ends(), `", "`))
	}
	*o = onTimeout(s)
	return nil
}
