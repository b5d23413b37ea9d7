// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"moult.dev/moult/api/v1alpha1"
)

// Reasons of a budget's conditions, beside the gates that block.
const (
	reasonGoverns = "Governs"
	reasonOpen    = "Open"
)

// Standing is what a budget's conditions are made of, beside what its status says already.
type Standing struct {
	// Problem says what of the budget can't be understood, or nothing.
	Problem string
	// Limit is how many nodes may be unavailable; negative when there is no limit by number.
	Limit int
	// Notes say what else is worth knowing.
	Notes []string
}

// SetBudgetConditions sets Ready, Open, Reconciling and Stalled of a budget whose status says what blocks it.
func SetBudgetConditions(b *v1alpha1.NodeDisruptionBudget, s Standing, now time.Time) {
	open, reason, message := budgetOpen(b, s)
	for _, note := range s.Notes {
		message += "; " + note
	}
	setBudget(b, v1alpha1.ConditionOpen, open, reason, message, now)
	if s.Problem != "" {
		invalid := string(v1alpha1.ReasonBudgetInvalid)
		setBudget(b, v1alpha1.ConditionReady, false, invalid, s.Problem, now)
		setBudget(b, v1alpha1.ConditionReconciling, false, invalid, "", now)
		setBudget(b, v1alpha1.ConditionStalled, true, invalid, s.Problem, now)
		return
	}
	text := fmt.Sprintf("%d of %s unavailable; %s", b.Status.Unavailable, nodes(b.Status.Matched), message)
	setBudget(b, v1alpha1.ConditionReady, true, reasonGoverns, text, now)
	setBudget(b, v1alpha1.ConditionReconciling, false, reasonGoverns, "", now)
	setBudget(b, v1alpha1.ConditionStalled, false, reasonGoverns, "", now)
}

// budgetOpen says whether nodes may be taken now.
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
		return true, reasonOpen, nodes(int32(min(left, 1<<30))) + " may be taken"
	}
}

func nodes(n int32) string {
	if n == 1 {
		return "1 node"
	}
	return fmt.Sprintf("%d nodes", n)
}

func setBudget(b *v1alpha1.NodeDisruptionBudget, kind string, status bool, reason, message string, now time.Time) {
	meta.SetStatusCondition(&b.Status.Conditions, metav1.Condition{
		Type: kind, Status: is(status), Reason: reason, Message: message,
		ObservedGeneration: b.Generation, LastTransitionTime: metav1.NewTime(now.UTC().Truncate(time.Second)),
	})
}
