// SPDX-License-Identifier: Apache-2.0

package events

import (
	corev1 "k8s.io/api/core/v1"

	"moult.dev/moult/api/v1alpha1"
)

// BudgetInvalid: the budget can't be understood, so that none of its nodes may be taken.
func BudgetInvalid(b *v1alpha1.NodeDisruptionBudget, why string) Event {
	return Event{b, corev1.EventTypeWarning, string(v1alpha1.ReasonBudgetInvalid), "The budget can't be understood, no node may be taken: " + why}
}

// BudgetBlocked: a gate lets none of the budget's nodes be taken. The reason is the gate.
func BudgetBlocked(b *v1alpha1.NodeDisruptionBudget, gate v1alpha1.Reason, why string) Event {
	return Event{b, corev1.EventTypeNormal, string(gate), "No node may be taken: " + why}
}

// BudgetOpened: no gate blocks any more.
func BudgetOpened(b *v1alpha1.NodeDisruptionBudget) Event {
	return Event{b, corev1.EventTypeNormal, "Opened", "Nothing blocks any more"}
}
