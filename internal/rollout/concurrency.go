// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"moult.dev/moult/api/v1alpha1"
)

// slotFree enforces the concurrency. Units in a turn hold a slot. Without a failure limit failed units hold one too, so
// that a rollout whose turns all fail stops by itself.
func slotFree(p *pass, c *candidate) (v1alpha1.Reason, string) {
	holds := p.slots.holds(c.Unit)
	if holds && p.slots.busy < p.slots.limit || !holds && len(p.slots.holders) < p.slots.limit {
		return "", ""
	}
	return v1alpha1.ReasonMaxConcurrent, p.slots.explain()
}

// slots counts the units of a rollout that hold slots, and keeps names for messages.
type slots struct {
	// failedFree is true when a unit that failed for good frees its slot.
	failedFree bool
	limit      int
	// busy counts the holders that do not wait for a start. A holder that restarts needs busy to be below the limit.
	busy int
	// holders are the nodes that hold a slot, and failed are those of them that have failed.
	holders, failed []string
	message         string
}

// maxListed is how many nodes, domains or pods a message lists.
const maxListed = 3

func countSlots(s *Strategy, units []Unit, now time.Time) slots {
	c := slots{limit: s.MaxConcurrent, failedFree: s.MaxFailures != nil}
	for i := range units {
		u := &units[i]
		if !c.holds(u) {
			continue
		}
		if u.State == v1alpha1.UnitFailed {
			c.failed = append(c.failed, u.Node)
		}
		if !u.wantsStart(now) {
			c.busy++
		}
		c.take(u.Node)
	}
	return c
}

// holds reports whether the unit uses up a slot.
func (c *slots) holds(u *Unit) bool { return u.HoldsSlot() && (!c.failedFree || !u.failedForGood()) }

// start records that a unit starts or restarts.
func (c *slots) start(u *Unit) {
	c.busy++
	switch {
	case !c.holds(u):
		c.take(u.Node)
	case u.State == v1alpha1.UnitFailed:
		// A retry.
		c.failed = slices.DeleteFunc(c.failed, func(name string) bool { return name == u.Node })
		c.message = ""
	}
}

func (c *slots) take(node string) {
	c.holders = append(c.holders, node)
	c.message = ""
}

// explain returns why no slot is free. The text is the same for every unit, so it is built once.
func (c *slots) explain() string {
	if c.message != "" {
		return c.message
	}
	switch {
	case c.limit == 0:
		c.message = "the concurrency is 0, so no node is started"
	case len(c.failed) > 0:
		c.message = fmt.Sprintf("%d of %d slots taken, %d of them by failed nodes (%s)",
			len(c.holders), c.limit, len(c.failed), list(c.failed, len(c.failed)))
	default:
		c.message = fmt.Sprintf("%d of %d slots taken (%s)", len(c.holders), c.limit, list(c.holders, len(c.holders)))
	}
	return c.message
}

// Shorten cuts a text to this many bytes, with an ellipsis at its end.
func Shorten(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-len("…")], "") + "…"
}

// list joins the first names, and counts the others.
func list(names []string, total int) string {
	names = names[:min(len(names), maxListed)]
	text := strings.Join(names, ", ")
	if more := total - len(names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
