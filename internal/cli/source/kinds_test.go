// SPDX-License-Identifier: Apache-2.0

package source

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
		"eds/d":                              {DaemonSet, "d"},
		"extendeddaemonset/d":                {DaemonSet, "d"},
		"ExtendedDaemonSets/d":               {DaemonSet, "d"},
		"eds.datadoghq.com/d":                {DaemonSet, "d"},
		"nr/r":                               {NodeRollout, "r"},
		"NodeRollout/r":                      {NodeRollout, "r"},
		"noderollouts.moult.dev/r":           {NodeRollout, "r"},
		"noderollouts.v1alpha1.moult.dev/r":  {NodeRollout, "r"},
		"ers/d":                              {},
		"pod/p":                              {},
		"node/n":                             {}, // It is not among those that are meant.
		"plan/":                              {},
		"":                                   {},
		"plan/a/b":                           {},
		"nodedisruptionbudget.v1.moult.dev/": {},
	} {
		got, err := Parse(arg, Plan, DaemonSet, NodeRollout, Budget)
		if (want.Name == "") != (err != nil) || got != want {
			t.Errorf("%q: %+v, %v; want %+v", arg, got, err, want)
		}
	}
}

func TestParseSaysWhatIsMeant(t *testing.T) {
	_, err := Parse("pod/p", Node, Plan)
	if want := `"pod/p" names no Node or Plan: the word before the slash must be node or plan`; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

func TestParseSaysAllThatIsMeant(t *testing.T) {
	_, err := Parse("pod/p", Plan, DaemonSet, Budget)
	want := `"pod/p" names no Plan, ExtendedDaemonSet or NodeDisruptionBudget: the word before the slash must be plan, extendeddaemonset or nodedisruptionbudget`
	if err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

func TestArg(t *testing.T) {
	for want, got := range map[string]string{
		"p -n ns": Arg(Plan.Name, "ns", "p"), "eds/d -n ns": Arg(DaemonSet.Name, "ns", "d"), "nr/r": Arg(NodeRollout.Name, "", "r"),
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestString(t *testing.T) {
	for want, got := range map[string]string{
		"plan.upgrade.cattle.io/p":          Plan.String("p"),
		"extendeddaemonset.datadoghq.com/d": DaemonSet.String("d"),
		"node/n":                            Node.String("n"),
		"nodedisruptionbudget.moult.dev/b":  Budget.String("b"),
		"noderollout.moult.dev/r":           NodeRollout.String("r"),
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
