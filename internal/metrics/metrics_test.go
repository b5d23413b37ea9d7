// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
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

// told is what the registry tells of the metrics with these names.
func told(t *testing.T, names ...string) string {
	t.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, f := range families {
		if !slices.Contains(names, f.GetName()) {
			continue
		}
		for _, m := range f.GetMetric() {
			line := ""
			for _, l := range m.GetLabel() {
				line += l.GetName() + "=" + l.GetValue() + " "
			}
			lines = append(lines, fmt.Sprintf("%s%g", line, m.GetGauge().GetValue()))
		}
	}
	return strings.Join(lines, "; ")
}

func TestStuck(t *testing.T) {
	a, b := types.NamespacedName{Namespace: "a", Name: "d"}, types.NamespacedName{Namespace: "b", Name: "d"}
	for i, step := range []struct {
		do   func()
		want string
	}{
		{func() { SetStuck(a, map[string]bool{"d-1": true}) }, "name=d-1 namespace=a 1"},
		{func() { SetStuck(b, map[string]bool{"d-1": false}) }, "name=d-1 namespace=a 1; name=d-1 namespace=b 0"},
		{func() { SetStuck(a, map[string]bool{"d-1": false, "d-2": true}) }, "name=d-1 namespace=a 0; name=d-1 namespace=b 0; name=d-2 namespace=a 1"},
		{func() { SetStuck(a, map[string]bool{"d-2": false}) }, "name=d-1 namespace=b 0; name=d-2 namespace=a 0"},
		{func() { ForgetDaemonSet(a) }, "name=d-1 namespace=b 0"},
		{func() { SetStuck(b, nil) }, ""},
		{func() { ForgetDaemonSet(b) }, ""},
	} {
		step.do()
		if got := told(t, "ers_rolling_update_stuck"); got != step.want {
			t.Errorf("step %d: got %q, want %q", i, got, step.want)
		}
	}
	rollingUpdateStuck.last.Range(func(key, _ any) bool {
		t.Errorf("it remembers %v", key)
		return true
	})
}

func TestForgetDaemonSet(t *testing.T) {
	key := types.NamespacedName{Namespace: "a", Name: "d"}
	SetUnits(DaemonSet(key), map[v1alpha1.UnitState]int{v1alpha1.UnitUpdated: 2}, nil)
	if got, want := told(t, "moult_units"), "kind=ExtendedDaemonSet name=d namespace=a state=Updated 2"; !strings.Contains(got, want) {
		t.Errorf("got %q, want %q in it", got, want)
	}
	ForgetDaemonSet(key)
	if got := told(t, "moult_units"); got != "" {
		t.Errorf("got %q", got)
	}
}

func TestLeader(t *testing.T) {
	for _, leads := range []bool{false, true, true, false} {
		SetLeader(leads)
		if got, want := told(t, "eds_controller_leader"), fmt.Sprintf("leader=%t 1", leads); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestHostVersions(t *testing.T) {
	for i, step := range []struct {
		do   func()
		want string
	}{
		{func() { SetHostVersions("os", []v1alpha1.HostVersion{{Version: "1.0.0", Nodes: 3}}) }, "name=os version=1.0.0 3"},
		{func() { SetHostVersions("b", []v1alpha1.HostVersion{{Version: "1.0.0", Nodes: 1}}) }, "name=b version=1.0.0 1; name=os version=1.0.0 3"},
		{func() {
			SetHostVersions("os", []v1alpha1.HostVersion{{Version: "1.0.0", Nodes: 1}, {Version: "1.1.0", Nodes: 2}})
		}, "name=b version=1.0.0 1; name=os version=1.0.0 1; name=os version=1.1.0 2"},
		{func() { ForgetNodeRollout(types.NamespacedName{Name: "os"}) }, "name=b version=1.0.0 1"},
		{func() { SetHostVersions("b", nil) }, ""},
	} {
		step.do()
		if got := told(t, "moult_host_versions"); got != step.want {
			t.Errorf("step %d tells %s, want %s", i+1, got, step.want)
		}
	}
}

// How many nodes of a rollout are in each state, in place of brupop's brupop_hosts_state.
func TestUnitMetrics(t *testing.T) {
	r := Rollout{Kind: "NodeRollout", NamespacedName: types.NamespacedName{Name: "units"}}
	SetUnits(r, map[v1alpha1.UnitState]int{v1alpha1.UnitUpdated: 2, v1alpha1.UnitFailed: 1}, map[v1alpha1.Reason]int{v1alpha1.ReasonClaimed: 3})
	all := told(t, "moult_units", "moult_units_waiting")
	for _, want := range []string{
		"kind=NodeRollout name=units namespace= state=Updated 2", "kind=NodeRollout name=units namespace= state=Failed 1",
		"kind=NodeRollout name=units namespace= state=Outdated 0", "kind=NodeRollout name=units namespace= reason=Claimed 3",
	} {
		if !strings.Contains(all, want) {
			t.Errorf("%s is not in %s", want, all)
		}
	}
	if ForgetNodeRollout(r.NamespacedName); strings.Contains(told(t, "moult_units", "moult_units_waiting"), "name=units ") {
		t.Error("a rollout that is gone is still in the metrics")
	}
}
