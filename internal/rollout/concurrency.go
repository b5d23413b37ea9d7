// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"strings"

	"moult.dev/moult/api/v1alpha1"
)

// slotFree keeps a rollout within its concurrency. Units in a turn hold a slot, and so do failed ones: a rollout whose
// every turn fails stops by itself.
func slotFree(p *pass, u *Unit) (v1alpha1.Reason, string) {
	if u.HoldsSlot() && p.slots.busy < p.slots.limit || !u.HoldsSlot() && p.slots.free > 0 {
		return "", ""
	}
	return v1alpha1.ReasonMaxConcurrent, p.slots.explain()
}

// slots counts what a rollout has in flight, and remembers who, to say so.
type slots struct {
	limit, free int
	// busy counts those of the holders that need not start over: one that does may only as far as these leave room.
	busy             int
	holders, failed  int
	holder, failures []string
	message          string
}

// named bounds how many holders a message names.
const named = 3

func countSlots(s *Strategy, units []Unit) slots {
	c := slots{limit: s.MaxConcurrent, free: s.MaxConcurrent}
	for i := range units {
		u := &units[i]
		if !u.HoldsSlot() {
			continue
		}
		if u.State == v1alpha1.UnitFailed {
			c.failed++
			if len(c.failures) < named {
				c.failures = append(c.failures, u.Node)
			}
		}
		if !u.InTurn {
			c.busy++
		}
		c.take(u.Node)
	}
	return c
}

func (c *slots) take(node string) {
	c.free--
	c.holders++
	if len(c.holder) < named {
		c.holder = append(c.holder, node)
	}
	c.message = ""
}

// explain is the same text for every unit that waits for a slot, so it is made once.
func (c *slots) explain() string {
	if c.message != "" {
		return c.message
	}
	switch {
	case c.limit == 0:
		c.message = "the concurrency is 0, so no node is started"
	case c.failed > 0:
		c.message = fmt.Sprintf("%d of %d slots taken, %d of them by failed nodes (%s)", c.holders, c.limit, c.failed, list(c.failures, c.failed))
	default:
		c.message = fmt.Sprintf("%d of %d slots taken (%s)", c.holders, c.limit, list(c.holder, c.holders))
	}
	return c.message
}

func list(names []string, total int) string {
	text := strings.Join(names, ", ")
	if more := total - len(names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
