// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"moult.dev/moult/api/v1alpha1"
)

var (
	budgetMatched     = gauge("moult_budget_matched", "Nodes that a NodeDisruptionBudget selects.", "budget")
	budgetUnavailable = gauge("moult_budget_unavailable", "Nodes that a NodeDisruptionBudget selects and that are unavailable.", "budget")
	budgetAllowed     = gauge("moult_budget_allowed",
		"How many more nodes a NodeDisruptionBudget lets be taken now; absent when it sets no limit and nothing blocks.", "budget")
	budgetBlocked = comingAndGoing("moult_budget_blocked",
		"1 for each gate that keeps all nodes of a NodeDisruptionBudget from being taken now.", "budget", "gate")
)

// SetBudget sets the series of a budget by its status.
func SetBudget(budget string, s *v1alpha1.NodeDisruptionBudgetStatus) {
	budgetMatched.WithLabelValues(budget).Set(float64(s.Matched))
	budgetUnavailable.WithLabelValues(budget).Set(float64(s.Unavailable))
	if s.Allowed == nil {
		budgetAllowed.DeleteLabelValues(budget)
	} else {
		budgetAllowed.WithLabelValues(budget).Set(float64(*s.Allowed))
	}
	now := make(map[v1alpha1.Reason]int, len(s.BlockedBy))
	for i := range s.BlockedBy {
		now[s.BlockedBy[i].Gate] = 1
	}
	set(budgetBlocked, budget, now, budget)
}

// ForgetBudget removes a deleted budget.
func ForgetBudget(budget string) {
	SetBudget(budget, &v1alpha1.NodeDisruptionBudgetStatus{})
	budgetMatched.DeleteLabelValues(budget)
	budgetUnavailable.DeleteLabelValues(budget)
}
