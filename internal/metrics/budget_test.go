// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"moult.dev/moult/api/v1alpha1"
)

// budgets is what the registry tells of budgets.
func budgets(t *testing.T) string {
	t.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, f := range families {
		name, ok := strings.CutPrefix(f.GetName(), "moult_budget_")
		if !ok {
			continue
		}
		for _, m := range f.GetMetric() {
			line := name
			for _, l := range m.GetLabel() {
				line += " " + l.GetValue()
			}
			lines = append(lines, fmt.Sprintf("%s %g", line, m.GetGauge().GetValue()))
		}
	}
	return strings.Join(lines, "; ")
}

func TestBudgetMetrics(t *testing.T) {
	for _, step := range []struct {
		do   func()
		want string
	}{
		{func() {
			SetBudget("b", &v1alpha1.NodeDisruptionBudgetStatus{
				Matched: 5, Unavailable: 2, Allowed: ptr.To[int32](0), BlockedBy: []v1alpha1.BudgetBlock{{Gate: v1alpha1.ReasonPodsBlock}},
			})
		}, "allowed b 0; blocked b PodsBlock 1; matched b 5; unavailable b 2"},
		{func() { SetBudget("b", &v1alpha1.NodeDisruptionBudgetStatus{Matched: 5}) }, "matched b 5; unavailable b 0"},
		{func() { ForgetBudget("b") }, ""},
	} {
		step.do()
		if got := budgets(t); got != step.want {
			t.Errorf("got %q, want %q", got, step.want)
		}
	}
}
