// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"moult.dev/moult/api/v1alpha1"
)

var (
	budgetMatched = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "moult_budget_matched",
		Help: "Nodes that a NodeDisruptionBudget selects.",
	}, []string{"budget"})

	budgetUnavailable = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "moult_budget_unavailable",
		Help: "Nodes that a NodeDisruptionBudget selects and that are unavailable.",
	}, []string{"budget"})

	budgetAllowed = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "moult_budget_allowed",
		Help: "How many more nodes a NodeDisruptionBudget lets be taken now; absent when it sets no limit and nothing blocks.",
	}, []string{"budget"})

	budgetBlocked = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "moult_budget_blocked",
		Help: "1 for each gate that keeps all nodes of a NodeDisruptionBudget from being taken now.",
	}, []string{"budget", "gate"})
)

// SetBudget sets how a budget stands.
func SetBudget(budget string, s *v1alpha1.NodeDisruptionBudgetStatus) {
	budgetMatched.WithLabelValues(budget).Set(float64(s.Matched))
	budgetUnavailable.WithLabelValues(budget).Set(float64(s.Unavailable))
	if s.Allowed == nil {
		budgetAllowed.DeleteLabelValues(budget)
	} else {
		budgetAllowed.WithLabelValues(budget).Set(float64(*s.Allowed))
	}
	budgetBlocked.DeletePartialMatch(prometheus.Labels{"budget": budget})
	for i := range s.BlockedBy {
		budgetBlocked.WithLabelValues(budget, string(s.BlockedBy[i].Gate)).Set(1)
	}
}

// ForgetBudget drops a budget that is gone.
func ForgetBudget(budget string) {
	for _, vec := range []*prometheus.GaugeVec{budgetMatched, budgetUnavailable, budgetAllowed, budgetBlocked} {
		vec.DeletePartialMatch(prometheus.Labels{"budget": budget})
	}
}
