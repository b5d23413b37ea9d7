// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"
	"time"
	"unicode/utf8"

	"moult.dev/moult/internal/cli/text"
	"moult.dev/moult/internal/view"
)

// drawBudgets makes the lines of the budgets: one of each, and when all is shown one of each node that uses it up.
func drawBudgets(budgets []view.Budget, now time.Time, d detail) block {
	name, state := 0, 0
	for i := range budgets {
		name = max(name, min(utf8.RuneCountInString(budgets[i].Name), widest))
		state = max(state, len(budgets[i].State))
	}
	g := group{rank: rankBudget}
	g.rest = func(n int) line { return line{dim.Of(remaining(n, len(budgets), "budgets"))} }
	blk := block{header: []line{{bold.Of("Budgets")}}}
	for i := range budgets {
		b := &budgets[i]
		l := line{
			plain.Of(fmt.Sprintf("  %-*s  ", name, b.Name)), colourOfBudget(b.State).Of(fmt.Sprintf("%-*s  ", state, b.State)), plain.Of(b.Line()),
		}
		for _, block := range b.BlockedBy {
			l = append(l, red.Of("; "+blocked(&block, now)))
		}
		if b.Message != "" {
			l = append(l, dim.Of("; "+b.Message))
		}
		g.lines = append(g.lines, l)
		if d.wide() && len(b.Holders) > 0 {
			// Where there is no room for all, every budget matters more than who uses one up.
			blk.groups = append(blk.groups, g, holders(b))
			g.lines = nil
		}
	}
	blk.groups = append(blk.groups, g)
	return blk
}

// holders makes the lines of the nodes that use up a budget.
func holders(b *view.Budget) group {
	g := group{rank: rankHolder}
	for i := range b.Holders {
		h := &b.Holders[i]
		g.lines = append(g.lines, line{plain.Of("    " + h.Node + "  "), yellow.Of(string(h.Cause)), dim.Of("  " + h.Message)}.Trimmed())
	}
	g.rest = func(n int) line { return line{dim.Of(remaining(n, len(g.lines), "nodes use it up"))} }
	return g
}

// blocked says what blocks, and since when.
func blocked(b *view.Block, now time.Time) string {
	said := string(b.Gate)
	if age := text.Since(b.Since, now); age != "" {
		said += " for " + age
	}
	if b.Message != "" {
		said += ": " + b.Message
	}
	return said
}

func colourOfBudget(s view.BudgetState) style {
	switch s {
	case view.BudgetOpen:
		return green
	case view.BudgetExhausted:
		return yellow
	case view.BudgetBlocked, view.BudgetInvalid:
	}
	return red
}
