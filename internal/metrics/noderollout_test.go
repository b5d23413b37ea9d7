// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"moult.dev/moult/api/v1alpha1"
)

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
