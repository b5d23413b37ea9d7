// SPDX-License-Identifier: Apache-2.0

package events

import "moult.dev/moult/api/v1alpha1"

type budget = *v1alpha1.NodeDisruptionBudget

var (
	// BudgetInvalid: the budget has an error, so no rollout may take its nodes.
	BudgetInvalid = saying[budget](warning, string(v1alpha1.ReasonBudgetInvalid), "The budget can't be understood, no node may be taken: %s")
	// BudgetOpened: no gate blocks any more.
	BudgetOpened = fixed[budget](normal, "Opened", "Nothing blocks any more")
)

// BudgetBlocked: a gate keeps rollouts from taking the budget's nodes. The reason is the gate.
func BudgetBlocked(b *v1alpha1.NodeDisruptionBudget, gate v1alpha1.Reason, why string) Event {
	return Event{b, normal, string(gate), "No node may be taken: " + why}
}
