// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"moult.dev/moult/api/v1alpha1"
)

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
