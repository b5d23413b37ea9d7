// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

func TestLeft(t *testing.T) {
	in := func(name string, s State, message string) Outcome {
		return Outcome{Pod: types.NamespacedName{Namespace: "web", Name: name}, State: s, Message: message}
	}
	held := in("api", Blocked, "no")
	held.Budget = "web/api"
	for want, r := range map[string]Result{
		"0 pods left": {Pods: []Outcome{in("d", Skipped, ""), in("x", Gone, "")}},
		"1 pod left":  {Pods: []Outcome{in("a", Terminating, ""), in("d", Skipped, "")}},
		"3 pods left": {Pods: []Outcome{in("a", Evicted, ""), in("b", Terminating, ""), in("dns", Waiting, "later")}},
		"1 pod left; pod web/a is still terminating":                          {Pods: []Outcome{in("a", Terminating, "")}, TimedOut: HaltOnTimeout},
		"2 pods left; pod web/api is held by PodDisruptionBudget web/api: no": {Pods: []Outcome{in("a", Evicted, ""), held}},
		"3 pods left; pod web/b can't be evicted: forbidden (and 1 more)":     {Pods: []Outcome{in("a", Evicted, ""), in("b", Failed, "forbidden"), held}},
		"2 pods left; pod web/u has no controller":                            {Pods: []Outcome{in("a", Waiting, ""), in("u", Refused, "has no controller")}},
		"1 pod left; pod web/api is held by PodDisruptionBudget web/api: no":  {Pods: []Outcome{held}, Attached: []string{"pv-1"}},
		"no pods left; volumes still attached: pv-1":                          {Attached: []string{"pv-1"}},
		"no pods left; volumes still attached: 1, 2, 3, 4, 5":                 {Attached: []string{"1", "2", "3", "4", "5"}},
		"no pods left; volumes still attached: 1, 2, 3, 4, 5 and 2 more":      {Attached: []string{"1", "2", "3", "4", "5", "6", "7"}},
	} {
		expect(t, want, want, r.Left())
	}
}
