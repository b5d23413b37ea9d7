// SPDX-License-Identifier: Apache-2.0

package moult

import (
	"cmp"
	"time"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cli/text"
	"moult.dev/moult/internal/view"
)

var budgetStyles = map[view.BudgetState]text.Style{
	view.BudgetOpen: text.Green, view.BudgetExhausted: text.Yellow, view.BudgetBlocked: text.Red, view.BudgetInvalid: text.Red,
}

// drawBudgets makes a line for each budget. With all, it adds one for each unavailable node.
func drawBudgets(budgets []view.Budget, now time.Time, all bool) text.Lines {
	name, state := 0, 0
	for i := range budgets {
		name = max(name, min(text.Width(budgets[i].Name), widest))
		state = max(state, len(budgets[i].State))
	}
	lines := text.Lines{{text.Bold.Of("Budgets")}}
	for i := range budgets {
		b := &budgets[i]
		l := text.Line{
			text.Plain.Of("  " + text.Fill(b.Name, name) + "  "), budgetStyles[b.State].Format("%-*s  ", state, b.State), text.Plain.Of(b.Line()),
		}
		for j := range b.BlockedBy {
			l = append(l, text.Red.Of("; "+blockText(&b.BlockedBy[j], now)))
		}
		lines = append(lines, l)
		if !all {
			continue
		}
		for j := range b.Holders {
			h := &b.Holders[j]
			lines.Add(text.Plain.Of("    "+h.Node+"  "), text.Yellow.Of(string(h.Cause)), text.Dim.Of("  "+cmp.Or(h.Message, h.By)))
		}
	}
	return lines
}

// blockText says what blocks, and since when.
func blockText(b *v1alpha1.BudgetBlock, now time.Time) string {
	return text.JoinNonEmpty(": ", string(b.Gate)+text.For(&b.Since, now), b.Message)
}
