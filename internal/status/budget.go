// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"
	"strings"
	"time"

	"moult.dev/moult/api/v1alpha1"
)

// Reasons of a budget's conditions, besides the gates that block.
const (
	reasonGoverns = "Governs"
	reasonOpen    = "Open"
)

// Standing is the input of a budget's conditions besides its status.
type Standing struct {
	// Problem says what is invalid; empty if nothing is.
	Problem string
	// Limit is how many nodes may be unavailable; negative when there is no limit by number.
	Limit int
	// Notes are appended to the message.
	Notes []string
}

// SetBudgetConditions sets Ready, Open, Reconciling and Stalled of a budget whose status lists what blocks it.
func SetBudgetConditions(b *v1alpha1.NodeDisruptionBudget, s Standing, now time.Time) {
	open, reason, message := budgetOpen(b, s)
	for _, note := range s.Notes {
		message += "; " + note
	}
	set := conditionSetter(&b.Status.Conditions, b.Generation, now)
	set(v1alpha1.ConditionOpen, open, reason, message)
	if s.Problem != "" {
		setKstatus(set, false, true, string(v1alpha1.ReasonBudgetInvalid), s.Problem)
		return
	}
	setKstatus(set, true, false, reasonGoverns, fmt.Sprintf("%d of %s unavailable; %s", b.Status.Unavailable, nodes(int(b.Status.Matched)), message))
}

// budgetOpen returns whether rollouts may claim nodes now, and why.
func budgetOpen(b *v1alpha1.NodeDisruptionBudget, s Standing) (open bool, reason, message string) {
	if blocks := b.Status.BlockedBy; len(blocks) > 0 {
		why := make([]string, len(blocks))
		for i := range blocks {
			why[i] = blocks[i].Message
		}
		return false, string(blocks[0].Gate), "no node may be taken: " + strings.Join(why, "; ")
	}
	switch left := s.Limit - int(b.Status.Unavailable); {
	case s.Limit < 0:
		return true, reasonOpen, "nodes may be taken, there is no limit by number"
	case s.Limit == 0:
		return false, string(v1alpha1.ReasonBudgetExhausted), "no node may be taken: maxUnavailable allows none"
	case left <= 0:
		return false, string(v1alpha1.ReasonBudgetExhausted), fmt.Sprintf("no node may be taken: at most %d may be unavailable", s.Limit)
	default:
		return true, reasonOpen, nodes(left) + " may be taken"
	}
}

func nodes(n int) string {
	if n == 1 {
		return "1 node"
	}
	return fmt.Sprintf("%d nodes", n)
}
