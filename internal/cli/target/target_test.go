// SPDX-License-Identifier: Apache-2.0

package target

import "testing"

func TestParse(t *testing.T) {
	for arg, want := range map[string]Target{
		"p":                                  {nil, "p"},
		"plan/p":                             {Plan, "p"},
		"Plans/p":                            {Plan, "p"},
		"plan.upgrade.cattle.io/p":           {Plan, "p"},
		"plans.v1.upgrade.cattle.io/p":       {Plan, "p"},
		"ndb/b":                              {Budget, "b"},
		"nodedisruptionbudgets.moult.dev/b":  {Budget, "b"},
		"plan.example.com/p":                 {},
		"pod/p":                              {},
		"node/n":                             {}, // It is not among those that are meant.
		"plan/":                              {},
		"":                                   {},
		"plan/a/b":                           {},
		"nodedisruptionbudget.v1.moult.dev/": {},
	} {
		got, err := Parse(arg, Plan, Budget)
		if (want.Name == "") != (err != nil) || got != want {
			t.Errorf("%q: %+v, %v; want %+v", arg, got, err, want)
		}
	}
}

func TestParseSaysWhatIsMeant(t *testing.T) {
	_, err := Parse("pod/p", Node, Plan)
	if want := `"pod/p" is not the name of a Node or a Plan: before the slash stands node or plan`; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

func TestString(t *testing.T) {
	for want, got := range map[string]string{
		"plan.upgrade.cattle.io/p":         Plan.String("p"),
		"node/n":                           Node.String("n"),
		"nodedisruptionbudget.moult.dev/b": Budget.String("b"),
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
