// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"testing"

	"moult.dev/moult/api/v1alpha1"
)

func TestGateChanged(t *testing.T) {
	for name, tc := range map[string]struct {
		before, now []v1alpha1.Reason
		want        string
	}{
		"new, open":           {nil, nil, ""},
		"blocked":             {nil, []v1alpha1.Reason{v1alpha1.ReasonAlertsActive}, "Normal AlertsActive No node may be taken: why"},
		"still blocked":       {[]v1alpha1.Reason{v1alpha1.ReasonAlertsActive}, []v1alpha1.Reason{v1alpha1.ReasonAlertsActive, v1alpha1.ReasonPodsBlock}, ""},
		"blocked by another":  {[]v1alpha1.Reason{v1alpha1.ReasonAlertsActive}, []v1alpha1.Reason{v1alpha1.ReasonPodsBlock}, "Normal PodsBlock No node may be taken: why"},
		"opened":              {[]v1alpha1.Reason{v1alpha1.ReasonAlertsActive}, nil, "Normal Opened Nothing blocks any more"},
		"can't be understood": {nil, []v1alpha1.Reason{v1alpha1.ReasonBudgetInvalid}, "Warning BudgetInvalid The budget can't be understood, no node may be taken: why"},
	} {
		t.Run(name, func(t *testing.T) {
			var before v1alpha1.NodeDisruptionBudgetStatus
			b := &v1alpha1.NodeDisruptionBudget{}
			for _, gate := range tc.before {
				before.BlockedBy = append(before.BlockedBy, v1alpha1.BudgetBlock{Gate: gate})
			}
			for _, gate := range tc.now {
				b.Status.BlockedBy = append(b.Status.BlockedBy, v1alpha1.BudgetBlock{Gate: gate, Message: "why"})
			}
			got := ""
			if e := gateChanged(&before, b); e != nil {
				got = e.Type + " " + e.Reason + " " + e.Message
			}
			if got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
