// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"fmt"
	"strings"
)

// maxNamed is how many volumes Left names.
const maxNamed = 5

// Left describes in one line what remains on the node: the number of pods, the first one that is refused, blocked or
// failed, and how many more are. If no pod remains, it names the volumes. Equal states give equal texts.
func (r *Result) Left() string {
	left := r.In(Refused, Waiting, Blocked, Failed, Evicted, Terminating)
	if len(left) == 0 && len(r.Attached) > 0 {
		return volumes(r.Attached)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d pods left", len(left))
	if len(left) == 1 {
		b.Reset()
		b.WriteString("1 pod left")
	}
	if held := r.In(Refused, Blocked, Failed); len(held) > 0 {
		b.WriteString("; " + held[0].String())
		if more := len(held) - 1; more > 0 {
			fmt.Fprintf(&b, " (and %d more)", more)
		}
	}
	return b.String()
}

func volumes(names []string) string {
	if len(names) == 1 {
		return "no pods left; volume " + names[0] + " is still attached"
	}
	more := ""
	if n := len(names) - maxNamed; n > 0 {
		names, more = names[:maxNamed], fmt.Sprintf(" and %d more", n)
	}
	return "no pods left; volumes " + strings.Join(names, ", ") + more + " are still attached"
}
