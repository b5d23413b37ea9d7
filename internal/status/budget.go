// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/rollout"
)

// Reasons of a budget's conditions, besides the gates that block.
const (
	reasonGoverns = "Governs"
	reasonOpen    = "Open"
	reasonInUse   = "InUse"
	reasonUnused  = "Unused"
)

// SetBudgetConditions sets Ready, Open, Progressing, Paused, Reconciling and Stalled of a budget. Its status lists what blocks it, and all
// holders. problem says what is invalid; empty if nothing is. limit is how many nodes may be unavailable; negative when there is no limit by
// number. The notes are appended to the message.
func SetBudgetConditions(b *v1alpha1.NodeDisruptionBudget, problem string, limit int, notes []string, now time.Time) {
	open, reason, message := budgetOpen(b, limit)
	message = strings.Join(append([]string{message}, notes...), "; ")
	set := conditionSetter(&b.Status.Conditions, b.Generation, now)
	set(v1alpha1.ConditionOpen, open, reason, message)
	inUse, use := slices.ContainsFunc(b.Status.Holders, func(h v1alpha1.BudgetHolder) bool { return h.By != "" }), reasonUnused
	if inUse {
		use = reasonInUse
	}
	set(v1alpha1.ConditionProgressing, inUse, use, "")
	setPaused(set, b.Spec.Paused)
	if problem != "" {
		setKstatus(set, false, true, string(v1alpha1.ReasonBudgetInvalid), problem)
		return
	}
	setKstatus(set, true, false, reasonGoverns, fmt.Sprintf("%d of %s unavailable; %s", b.Status.Unavailable, rollout.NodeCount(int(b.Status.Matched)), message))
}

// budgetOpen returns whether rollouts may claim nodes now, and why.
func budgetOpen(b *v1alpha1.NodeDisruptionBudget, limit int) (open bool, reason, message string) {
	if blocks := b.Status.BlockedBy; len(blocks) > 0 {
		why := make([]string, len(blocks))
		for i := range blocks {
			why[i] = blocks[i].Message
		}
		return false, string(blocks[0].Gate), "no node may be taken: " + strings.Join(why, "; ")
	}
	switch left := limit - int(b.Status.Unavailable); {
	case b.Status.Matched == 0:
		return true, reasonOpen, "it selects no node"
	case limit < 0:
		return true, reasonOpen, "nodes may be taken, there is no limit by number"
	case left <= 0:
		return false, string(v1alpha1.ReasonBudgetExhausted), fmt.Sprintf("no node may be taken: at most %d may be unavailable", limit)
	default:
		return true, reasonOpen, rollout.NodeCount(min(left, int(b.Status.Matched))) + " may be taken"
	}
}
