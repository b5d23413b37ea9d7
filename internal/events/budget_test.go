// SPDX-License-Identifier: Apache-2.0

package events

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"moult.dev/moult/api/v1alpha1"
)

func TestBudgetEvents(t *testing.T) {
	b := &v1alpha1.NodeDisruptionBudget{}
	for reason, tc := range map[string]struct {
		got           Event
		kind, message string
	}{
		"BudgetInvalid": {BudgetInvalid(b, "bad"), "Warning", "The budget can't be understood, no node may be taken: bad"},
		"AlertsActive":  {BudgetBlocked(b, v1alpha1.ReasonAlertsActive, "bad"), "Normal", "No node may be taken: bad"},
		"Opened":        {BudgetOpened(b), "Normal", "Nothing blocks any more"},
	} {
		if diff := cmp.Diff(Event{b, tc.kind, reason, tc.message}, tc.got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}
