// SPDX-License-Identifier: Apache-2.0

package moult

import (
	"time"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cli/text"
	"moult.dev/moult/internal/view"
)

var budgetStyles = map[view.BudgetState]text.Style{
	view.BudgetOpen: text.Green, view.BudgetExhausted: text.Yellow, view.BudgetBlocked: text.Red, view.BudgetInvalid: text.Red,
}

// drawBudgets makes a line for each budget. With all, it adds one for each unavailable node.
func drawBudgets(budgets []view.Budget, now time.Time, all bool) block {
	name, state := 0, 0
	for i := range budgets {
		name = max(name, min(text.Width(budgets[i].Name), widest))
		state = max(state, len(budgets[i].State))
	}
	blk := block{header: text.Lines{{text.Bold.Of("Budgets")}}}
	g := group{rest: func(n int) text.Line { return text.Line{text.Dim.Of(remaining(n, len(budgets), "budgets"))} }}
	for i := range budgets {
		b := &budgets[i]
		l := text.Line{
			text.Plain.Of("  " + text.Fill(b.Name, name) + "  "), budgetStyles[b.State].Format("%-*s  ", state, b.State), text.Plain.Of(b.Line()),
		}
		for j := range b.BlockedBy {
			l = append(l, text.Red.Of("; "+blockText(&b.BlockedBy[j], now)))
		}
		if b.Message != "" {
			l = append(l, text.Dim.Of("; "+b.Message))
		}
		g.lines = append(g.lines, l)
		if all && len(b.Holders) > 0 {
			// If space is short, the budgets matter more than their unavailable nodes.
			blk.groups = append(blk.groups, g, drawHolders(b))
			g.lines = nil
		}
	}
	blk.groups = append(blk.groups, g)
	return blk
}

// drawHolders makes the lines of a budget's unavailable nodes.
func drawHolders(b *view.Budget) group {
	g := group{minor: true}
	for i := range b.Holders {
		h := &b.Holders[i]
		g.lines.Add(text.Plain.Of("    "+h.Node+"  "), text.Yellow.Of(string(h.Cause)), text.Dim.Of("  "+h.Message))
	}
	g.rest = func(n int) text.Line { return text.Line{text.Dim.Of(remaining(n, len(g.lines), "nodes use it up"))} }
	return g
}

// blockText says what blocks, and since when.
func blockText(b *v1alpha1.BudgetBlock, now time.Time) string {
	return text.JoinSet(": ", string(b.Gate)+text.For(&b.Since, now), b.Message)
}
