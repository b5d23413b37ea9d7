// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"moult.dev/moult/api/v1alpha1"
)

func budget(t testing.TB, text string) Budget {
	t.Helper()
	return NewBudget(&v1alpha1.NodeDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "b"}, Spec: budgetOf(t, text)})
}

// well is a node of a zone that has been ready for an hour, changed.
func well(zone string, change ...func(*machine)) *Node {
	m := machine{readySince: noon.Add(-time.Hour), offSince: noon.Add(-time.Hour), evictions: -1, labels: map[string]string{"zone": zone}}
	if zone == "" {
		m.labels = nil
	}
	for _, c := range change {
		c(&m)
	}
	return m.node("")
}

func cordoned(m *machine) { m.cordoned = true }

func notReady(m *machine) { m.notReady, m.readySince = true, noon.Add(-2*time.Minute) }

func justReady(m *machine) { m.readySince = noon.Add(-time.Minute) }

func has(c v1alpha1.Claim) func(*machine) { return func(m *machine) { m.claims = append(m.claims, c) } }

func skippedClaim() v1alpha1.Claim {
	c := exclusive("other")
	c.Failed = &v1alpha1.ClaimFailure{Reason: v1alpha1.ReasonDrainTimeout, Skipped: true}
	return c
}

func TestExamine(t *testing.T) {
	nodes := map[string]*Node{
		"a": well("x"),
		"b": well("x", cordoned),
		"c": well("y", notReady, cordoned, has(exclusive("other"))),
		"d": well("y", notReady),
		"e": well("", justReady),
		"f": well("", has(skippedClaim())),
		"g": well("z", func(m *machine) { m.claimError = "bad" }),
		"h": well("z", func(m *machine) { m.offline = true }),
		"i": well("z", func(m *machine) { m.taint = true }),
		"j": {Name: "j", Labels: map[string]string{"zone": "x"}},
	}
	held := func(node string, cause v1alpha1.UnavailableCause, message string, ago time.Duration) Holder {
		h := Holder{Node: node, Cause: cause, Message: message}
		if ago > 0 {
			h.Since = noon.Add(-ago)
		}
		return h
	}
	other := held("c", v1alpha1.CauseClaimed, "claimed by Plan/fleet/other since 2026-11-20T11:00:00Z", time.Hour)
	other.By = "Plan/fleet/other"
	b := held("b", v1alpha1.CauseUnschedulable, "unschedulable", 0)
	d := held("d", v1alpha1.CauseNotReady, "not ready since 2026-11-20T11:58:00Z", 2*time.Minute)
	g := held("g", v1alpha1.CauseUnreadable, "bad", 0)
	j := held("j", v1alpha1.CauseNotReady, "not ready", 0)
	for name, tc := range map[string]struct {
		spec string
		edit func(*Budget)
		want Account
	}{
		"all":           {"{}", nil, Account{Matched: 10, Limit: -1, Holders: []Holder{b, other, d, g, j}}},
		"a share":       {"maxUnavailable: 15%", nil, Account{Matched: 10, Limit: 1, Holders: []Holder{b, other, d, g, j}}},
		"a count":       {"maxUnavailable: 3", nil, Account{Matched: 10, Limit: 3, Holders: []Holder{b, other, d, g, j}}},
		"a small share": {"maxUnavailable: 1%", nil, Account{Matched: 10, Limit: 1, Holders: []Holder{b, other, d, g, j}}},
		"nothing":       {"maxUnavailable: 0%", nil, Account{Matched: 10, Limit: 0, Holders: []Holder{b, other, d, g, j}}},
		"selected":      {"{selector: {matchLabels: {zone: x}}, maxUnavailable: 50%}", nil, Account{Matched: 3, Limit: 1, Holders: []Holder{b, j}}},
		"domains":       {"topologyKey: zone", nil, Account{Matched: 10, Limit: -1, Holders: []Holder{b, other, d, g, j}, Domains: map[string]int{"x": 2, "y": 2, "z": 1}}},
		"ready long enough": {"minReadySeconds: 120", nil, Account{Matched: 10, Limit: -1, Next: noon.Add(time.Minute), Holders: []Holder{
			b, other, d, held("e", v1alpha1.CauseMinReadySeconds, "ready only since 2026-11-20T11:59:00Z, and minReadySeconds is 2m0s", time.Minute), g, j,
		}}},
		"a condition": {"gates: {nodes: {conditions: [{type: NetworkUnavailable, status: 'False'}]}}", nil, Account{Matched: 10, Limit: -1, Holders: []Holder{
			b, other, d, g, held("h", v1alpha1.CauseUnhealthy, "condition NetworkUnavailable is True, and must be False", time.Hour), j,
		}}},
		"a condition that is absent": {"{selector: {matchLabels: {zone: x}}, gates: {nodes: {conditions: [{type: Fit, status: 'True'}]}}}", nil, Account{Matched: 3, Limit: -1, Holders: []Holder{
			held("a", v1alpha1.CauseUnhealthy, "condition Fit is absent, and must be True", 0), b, j,
		}}},
		"a taint": {"gates: {nodes: {absentTaints: ['readiness.k8s.io/*']}}", nil, Account{Matched: 10, Limit: -1, Holders: []Holder{
			b, other, d, g, held("i", v1alpha1.CauseUnhealthy, "taint readiness.k8s.io/agent must be absent", 0), j,
		}}},
		"another taint": {"gates: {nodes: {absentTaints: ['readiness.k8s.io/agen']}}", nil, Account{Matched: 10, Limit: -1, Holders: []Holder{b, other, d, g, j}}},
		"paused": {"paused: true", nil, Account{Matched: 10, Limit: -1, Holders: []Holder{b, other, d, g, j}, Blocks: []Block{
			{v1alpha1.ReasonBudgetPaused, "it is paused"},
		}}},
		"a closed window": {"windows: [{schedule: '0 22 * * *', duration: 1h}]", nil, Account{
			Matched: 10, Limit: -1, Holders: []Holder{b, other, d, g, j}, Next: noon.Add(10 * time.Hour),
			Blocks: []Block{{v1alpha1.ReasonOutsideBudgetWindow, "outside of its windows, the next opens at 2026-11-20T22:00:00Z"}},
		}},
		"an open window": {"windows: [{schedule: '0 11 * * *', duration: 2h}]", nil, Account{Matched: 10, Limit: -1, Holders: []Holder{b, other, d, g, j}, Next: noon.Add(time.Hour)}},
		"a window that never opens": {"windows: [{schedule: '0 11 30 2 *', duration: 2h}]", nil, Account{
			Matched: 10, Limit: -1, Holders: []Holder{b, other, d, g, j}, Blocks: []Block{{v1alpha1.ReasonOutsideBudgetWindow, "its windows never open"}},
		}},
		"a selector that can't be read selects all": {"selector: {matchExpressions: [{key: zone, operator: Resembles}]}", nil, Account{
			Matched: 10, Limit: -1, Holders: []Holder{b, other, d, g, j},
			Blocks: []Block{{v1alpha1.ReasonBudgetInvalid, `spec.selector: "Resembles" is not a valid label selector operator`}},
		}},
		"an amount that can't be read": {"{selector: {matchLabels: {zone: x}}, maxUnavailable: few}", nil, Account{
			Matched: 3, Limit: 0, Holders: []Holder{b, j},
			Blocks: []Block{{v1alpha1.ReasonBudgetInvalid, `spec.maxUnavailable: "few" is neither a count nor a percentage from 0% to 100%`}},
		}},
		"a gate": {"{}", func(b *Budget) { b.Blocks = []Block{{v1alpha1.ReasonAlertsActive, "alert"}} }, Account{
			Matched: 10, Limit: -1, Holders: []Holder{b, other, d, g, j}, Blocks: []Block{{v1alpha1.ReasonAlertsActive, "alert"}},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			b := budget(t, tc.spec)
			if tc.edit != nil {
				tc.edit(&b)
			}
			if diff := cmp.Diff(tc.want, b.Examine(&Fleet{Nodes: nodes}, noon), cmpopts.EquateEmpty(), cmpopts.IgnoreUnexported(Account{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Who starts, and what the first that waits is told.
func TestBudgets(t *testing.T) {
	const one = "maxUnavailable: 1"
	for name, tc := range map[string]struct {
		budgets []string
		nodes   map[string]*Node
		edit    func(f *Fleet, units []Unit)
		start   string
		reason  v1alpha1.Reason
		message string
	}{
		"one at a time": {budgets: []string{one}, start: "a", reason: v1alpha1.ReasonBudgetExhausted,
			message: "budget b: 1 node unavailable, at most 1 allowed (a started now)"},
		"used up by a node that failed": {budgets: []string{one}, nodes: map[string]*Node{"d": well("", notReady)}, start: "", reason: v1alpha1.ReasonBudgetExhausted,
			message: "budget b: 1 node unavailable, at most 1 allowed (d not ready since 2026-11-20T11:58:00Z)"},
		"which is not taken either": {budgets: []string{one}, nodes: map[string]*Node{"c": well("", notReady)}, start: "", reason: v1alpha1.ReasonBudgetExhausted,
			message: "budget b: 1 node unavailable, at most 1 allowed (c not ready since 2026-11-20T11:58:00Z)"},
		"where nothing is allowed": {budgets: []string{"maxUnavailable: 0"}, nodes: map[string]*Node{"c": well("", notReady)}, reason: v1alpha1.ReasonBudgetExhausted,
			message: "budget b: 1 node unavailable, at most 0 allowed (c not ready since 2026-11-20T11:58:00Z)"},
		"nothing is allowed, and nothing is unavailable": {budgets: []string{"maxUnavailable: 0"}, reason: v1alpha1.ReasonBudgetExhausted,
			message: "budget b: 0 nodes unavailable, at most 0 allowed"},
		"one that is skipped is not unavailable": {budgets: []string{one}, nodes: map[string]*Node{"d": well("", has(skippedClaim()))}, start: "a", reason: v1alpha1.ReasonBudgetExhausted,
			message: "budget b: 1 node unavailable, at most 1 allowed (a started now)"},
		"what is claimed already is paid": {budgets: []string{one}, nodes: map[string]*Node{"b": well("", has(exclusive(own)))},
			edit: func(_ *Fleet, u []Unit) { u[1].Claimed = true }, start: "b", reason: v1alpha1.ReasonBudgetExhausted,
			message: "budget b: 1 node unavailable, at most 1 allowed (b claimed by Plan/fleet/own since 2026-11-20T11:00:00Z)"},
		"all budgets must allow it": {budgets: []string{"{maxUnavailable: 2}", one}, start: "a", reason: v1alpha1.ReasonBudgetExhausted,
			message: "budget b: 1 node unavailable, at most 1 allowed (a started now)"},
		"only where it selects": {budgets: []string{"{selector: {matchLabels: {zone: x}}, maxUnavailable: 1}"}, nodes: map[string]*Node{"a": well("x"), "b": well("x")},
			start: "a c", reason: v1alpha1.ReasonBudgetExhausted, message: "budget b: 1 node unavailable, at most 1 allowed (a started now)"},
		"one domain": {budgets: []string{"{topologyKey: zone}"}, nodes: map[string]*Node{"a": well("x"), "b": well("y"), "c": well("x")},
			start: "a c", reason: v1alpha1.ReasonMaxDomains, message: "budget b: nodes of zone=y wait while some of x are unavailable, at most 1 at once"},
		"two domains": {budgets: []string{"{topologyKey: zone, maxDomains: 2}"}, nodes: map[string]*Node{"a": well("x"), "b": well("y"), "c": well("")},
			start: "a b", reason: v1alpha1.ReasonMaxDomains, message: "budget b: nodes of zone=(none) wait while some of x, y are unavailable, at most 2 at once"},
		"more domains than allowed, by themselves": {budgets: []string{"{topologyKey: zone}"},
			nodes: map[string]*Node{"a": well("x"), "b": well("y", notReady), "c": well("y"), "d": well("x", notReady)},
			start: "", reason: v1alpha1.ReasonMaxDomains, message: "budget b: nodes of zone=x wait while some of y are unavailable, at most 1 at once"},
		"a gate": {budgets: []string{"{}"}, edit: func(f *Fleet, _ []Unit) { f.Budgets[0].Blocks = []Block{{v1alpha1.ReasonAlertsActive, "alert X"}} },
			reason: v1alpha1.ReasonAlertsActive, message: "budget b: alert X"},
		"the gate of a node": {budgets: []string{"{}"}, edit: func(f *Fleet, _ []Unit) {
			f.Budgets[0].NodeBlocks = map[string]Block{"b": {v1alpha1.ReasonPodsBlock, "pod y"}}
		}, start: "a c", reason: v1alpha1.ReasonPodsBlock, message: "budget b: pod y"},
		"a gate does not hold what is claimed": {budgets: []string{"{}"}, edit: func(f *Fleet, u []Unit) {
			f.Budgets[0].Blocks = []Block{{v1alpha1.ReasonAlertsActive, "alert X"}}
			u[0].Claimed = true
		}, start: "a", reason: v1alpha1.ReasonAlertsActive, message: "budget b: alert X"},
		"unless the node serves again after it failed": {budgets: []string{"{}"}, nodes: map[string]*Node{"b": {Name: "b", Unschedulable: true}}, edit: func(f *Fleet, u []Unit) {
			f.Budgets[0].NodeBlocks = map[string]Block{"a": {v1alpha1.ReasonPodsBlock, "pod x"}, "b": {v1alpha1.ReasonPodsBlock, "pod y"}, "c": {v1alpha1.ReasonPodsBlock, "pod z"}}
			u[0].Claimed, u[1].Claimed, u[2].Claimed, u[2].InTurn = true, true, true, true
		}, start: "b c", reason: v1alpha1.ReasonPodsBlock, message: "budget b: pod x"},
		"what is being removed": {nodes: map[string]*Node{"c": {Name: "c", Removal: "being deleted"}}, start: "a b", reason: v1alpha1.ReasonClaimed, message: "the node is being deleted"},
		"a drain that is not over": {budgets: []string{"gates: {workloads: {}}"}, nodes: map[string]*Node{"c": {Name: "c", Draining: true}},
			reason: v1alpha1.ReasonWorkloadsUnavailable, message: "budget b: nodes that are not drained yet: c"},
		"a pause does": {budgets: []string{"paused: true"}, edit: func(_ *Fleet, u []Unit) { u[0].Claimed = true },
			reason: v1alpha1.ReasonBudgetPaused, message: "budget b: it is paused"},
		"one that can't be read": {budgets: []string{"selector: {matchExpressions: [{key: zone, operator: Resembles}]}"},
			reason: v1alpha1.ReasonBudgetInvalid, message: `budget b: spec.selector: "Resembles" is not a valid label selector operator`},
	} {
		t.Run(name, func(t *testing.T) {
			f := nodesOf(map[string]*Node{"a": well(""), "b": well(""), "c": well("")})
			maps.Copy(f.Nodes, tc.nodes)
			for _, spec := range tc.budgets {
				f.Budgets = append(f.Budgets, budget(t, spec))
			}
			units := []Unit{outdated("a", ranked(1)), outdated("b", ranked(2)), outdated("c", ranked(3))}
			if tc.edit != nil {
				tc.edit(&f, units)
			}
			d := Decide(Strategy{UID: own, MaxConcurrent: 9}, units, f, noon)
			start := ""
			for i, node := range d.Start {
				if i > 0 {
					start += " "
				}
				start += node
			}
			if start != tc.start {
				t.Errorf("starts %q, want %q", start, tc.start)
			}
			if len(d.Waiting) == 0 || d.Waiting[0].Reason != tc.reason || d.Waiting[0].Message != tc.message {
				t.Errorf("got %+v, want %s: %s", d.Waiting, tc.reason, tc.message)
			}
		})
	}
}

func TestHealth(t *testing.T) {
	f := nodesOf(map[string]*Node{"a": well("x", justReady), "b": well("x", func(m *machine) { m.offSince = noon.Add(-30 * time.Second) })})
	if got, _ := f.Unhealthy("a", noon); got != "" {
		t.Errorf("without budgets: %s", got)
	}
	if got, _ := f.Unhealthy("z", noon); got != "there is no such node" {
		t.Errorf("unknownNode: %s", got)
	}
	if got := f.SoakEnd("a", noon.Add(-2*time.Minute), time.Hour); !got.Equal(noon.Add(59 * time.Minute)) {
		t.Errorf("it became ready after the change: %s", got)
	}
	if got := f.SoakEnd("a", noon, time.Hour); !got.Equal(noon.Add(time.Hour)) {
		t.Errorf("it was ready before the change: %s", got)
	}
	f.Budgets = []Budget{budget(t, "{selector: {matchLabels: {zone: x}}, minReadySeconds: 90, gates: {nodes: {conditions: [{type: NetworkUnavailable, status: 'False'}]}}}")}
	why, end := f.health("a", &Health{}, noon)
	if why != "ready only since 2026-11-20T11:59:00Z, and minReadySeconds is 1m30s" || !end.Equal(noon.Add(30*time.Second)) {
		t.Errorf("ready too short: %s, until %s", why, end)
	}
	if got := f.SoakEnd("a", noon.Add(-2*time.Minute), time.Hour); !got.Equal(noon.Add(time.Hour + 30*time.Second)) {
		t.Errorf("it is healthy from then on only: %s", got)
	}
	if got := f.SoakEnd("b", noon.Add(-time.Minute), time.Hour); !got.Equal(noon.Add(time.Hour - 30*time.Second)) {
		t.Errorf("its network came after the change: %s", got)
	}
}

// A rollout that takes no node is asked for what switches a budget off, and not for how many nodes are unavailable.
func TestBesideBudgets(t *testing.T) {
	const full = "{maxUnavailable: 0, topologyKey: zone, "
	for name, tc := range map[string]struct {
		budget string
		edit   func(b *Budget)
		reason v1alpha1.Reason
	}{
		"used up, in two domains": {budget: full + "maxDomains: 1}"},
		"with a workloads gate":   {budget: full + "gates: {workloads: {}}}"},
		"paused":                  {budget: full + "paused: true}", reason: v1alpha1.ReasonBudgetPaused},
		"outside of its windows":  {budget: full + "windows: [{schedule: '0 22 * * *', duration: 1h}]}", reason: v1alpha1.ReasonOutsideBudgetWindow},
		"not to be read":          {budget: full + "maxDomains: 1}", edit: func(b *Budget) { b.Error = "bad" }, reason: v1alpha1.ReasonBudgetInvalid},
		"behind a gate": {
			budget: full + "maxDomains: 1}", edit: func(b *Budget) { b.Blocks = []Block{{v1alpha1.ReasonAlertsActive, "alert"}} }, reason: v1alpha1.ReasonAlertsActive,
		},
		"behind the gate of the nodes": {budget: full + "maxDomains: 1}", edit: func(b *Budget) {
			block := Block{v1alpha1.ReasonPodsBlock, "pod"}
			b.NodeBlocks = map[string]Block{"a": block, "b": block}
		}, reason: v1alpha1.ReasonPodsBlock},
	} {
		t.Run(name, func(t *testing.T) {
			f := nodesOf(map[string]*Node{"a": well("x"), "b": well("y"), "c": well("x", cordoned), "d": well("y", notReady)})
			f.Budgets = []Budget{budget(t, tc.budget)}
			if tc.edit != nil {
				tc.edit(&f.Budgets[0])
			}
			d := Decide(Strategy{UID: own, MaxConcurrent: 9, Claimless: true, Drains: true}, []Unit{outdated("a"), outdated("b")}, f, noon)
			if tc.reason == "" {
				if len(d.Start) != 2 {
					t.Errorf("starts %v, and waiting are %+v", d.Start, d.Waiting)
				}
				return
			}
			if len(d.Start) > 0 || len(d.Waiting) != 2 || d.Waiting[0].Reason != tc.reason || d.Waiting[1].Reason != tc.reason {
				t.Errorf("starts %v, and waiting are %+v, want %s", d.Start, d.Waiting, tc.reason)
			}
		})
	}
}

// A budget that counts daemon pods is used up by nodes on which they are replaced, and rollouts that replace them wait for it.
func TestDaemonPods(t *testing.T) {
	const both, pods = "counts: [Nodes, DaemonPods]", "counts: [DaemonPods]"
	agent := func(ago time.Duration) []Replacement {
		return []Replacement{{By: "ExtendedDaemonSet/ns/agent", Since: noon.Add(-ago)}}
	}
	for name, tc := range map[string]struct {
		budget   string
		daemon   bool
		replaced map[string][]Replacement
		nodes    map[string]*Node // besides a and b in zone x, and c in zone y
		starts   int
		reason   v1alpha1.Reason
		message  string
	}{
		"a daemon by default":                  {budget: "maxUnavailable: 1", daemon: true, starts: 3},
		"a daemon":                             {budget: "{maxUnavailable: 2, " + both + "}", daemon: true, starts: 2, reason: v1alpha1.ReasonBudgetExhausted},
		"a daemon beside a node that is down":  {budget: "{maxUnavailable: 2, " + both + "}", daemon: true, nodes: map[string]*Node{"d": well("x", cordoned)}, starts: 1, reason: v1alpha1.ReasonBudgetExhausted},
		"a daemon where that does not count":   {budget: "{maxUnavailable: 3, " + pods + "}", daemon: true, nodes: map[string]*Node{"d": well("x", cordoned)}, starts: 3},
		"a daemon beside another":              {budget: "{maxUnavailable: 1, " + both + "}", daemon: true, replaced: map[string][]Replacement{"d": agent(time.Hour)}, nodes: map[string]*Node{"d": well("x")}, reason: v1alpha1.ReasonBudgetExhausted, message: "budget b: 1 node unavailable, at most 1 allowed (d daemon pod replaced by ExtendedDaemonSet/ns/agent since 2026-11-20T11:00:00Z)"},
		"a daemon on the node of another":      {budget: "{maxUnavailable: 3, " + both + "}", daemon: true, replaced: map[string][]Replacement{"a": agent(time.Minute)}, starts: 3},
		"a daemon in another domain":           {budget: "{topologyKey: zone, " + both + "}", daemon: true, replaced: map[string][]Replacement{"a": agent(time.Minute)}, starts: 2, reason: v1alpha1.ReasonMaxDomains},
		"a rollout beside a daemon":            {budget: "{maxUnavailable: 1, " + both + "}", replaced: map[string][]Replacement{"d": agent(time.Hour)}, nodes: map[string]*Node{"d": well("x")}, reason: v1alpha1.ReasonBudgetExhausted},
		"a rollout beside a daemon by default": {budget: "maxUnavailable: 1", replaced: map[string][]Replacement{"d": agent(time.Hour)}, nodes: map[string]*Node{"d": well("x")}, starts: 1, reason: v1alpha1.ReasonBudgetExhausted},
		"a rollout, where only pods count":     {budget: "{maxUnavailable: 0, " + pods + "}", starts: 3},
		"a rollout on the daemon's node":       {budget: "{}", replaced: map[string][]Replacement{"a": agent(time.Minute)}, starts: 2, reason: v1alpha1.ReasonClaimed, message: "daemon pod replaced by ExtendedDaemonSet/ns/agent since 2026-11-20T11:59:00Z"},
		"not for ever":                         {budget: "{}", replaced: map[string][]Replacement{"a": agent(10 * time.Minute)}, starts: 3},
	} {
		t.Run(name, func(t *testing.T) {
			nodes := map[string]*Node{"a": well("x"), "b": well("x"), "c": well("y")}
			maps.Copy(nodes, tc.nodes)
			f := Fleet{Nodes: nodes, Replaced: tc.replaced, Budgets: []Budget{budget(t, tc.budget)}}
			units := []Unit{outdated("a", ranked(1)), outdated("b", ranked(2)), outdated("c", ranked(3))}
			d := Decide(Strategy{UID: own, MaxConcurrent: 9, Claimless: tc.daemon}, units, f, noon)
			if len(d.Start) != tc.starts || len(d.Waiting) != 3-tc.starts {
				t.Fatalf("starts %v, and waiting are %+v", d.Start, d.Waiting)
			}
			for _, w := range d.Waiting {
				if w.Reason != tc.reason || tc.message != "" && w.Message != tc.message {
					t.Errorf("got %s: %s", w.Reason, w.Message)
				}
			}
		})
	}
	// A rollout looks again when the daemon may keep it from the node no longer, and its own claim is not kept from it.
	f := Fleet{Nodes: map[string]*Node{"a": well("x")}, Replaced: map[string][]Replacement{"a": agent(time.Minute)}}
	if d := Decide(Strategy{UID: own, MaxConcurrent: 1}, []Unit{outdated("a")}, f, noon); !d.Next.Equal(noon.Add(9 * time.Minute)) {
		t.Errorf("next is %s", d.Next)
	}
	if d := Decide(Strategy{UID: own, MaxConcurrent: 1}, []Unit{outdated("a", inTurn, func(u *Unit) { u.Claimed = true })}, f, noon); len(d.Start) != 1 {
		t.Errorf("waiting are %+v", d.Waiting)
	}
}

// Two drains of one rollout do not begin together where the second has to wait for what the first evicts, though a person has
// cordoned the nodes.
func TestDrainsBeginOneByOne(t *testing.T) {
	for what, node := range map[string]*Node{"available": well(""), "cordoned": well("", cordoned)} {
		f := nodesOf(map[string]*Node{"a": node, "b": node})
		f.Budgets = []Budget{budget(t, "gates: {workloads: {}}")}
		units := []Unit{outdated("a", ranked(1)), outdated("b", ranked(2))}
		for drains, want := range map[bool]int{true: 1, false: 2} {
			d := Decide(Strategy{UID: own, MaxConcurrent: 9, Drains: drains}, units, f, noon)
			if len(d.Start) != want {
				t.Errorf("%s, drains %v: starts %v", what, drains, d.Start)
			}
			if drains && (len(d.Waiting) != 1 || d.Waiting[0].Reason != v1alpha1.ReasonWorkloadsUnavailable) {
				t.Errorf("%s: waiting are %+v", what, d.Waiting)
			}
		}
	}
}

// A node that goes is asked for as if it were available: its own trouble uses nothing up, that of others does.
func TestLeaves(t *testing.T) {
	for what, tc := range map[string]struct {
		node, other *Node
		starts      bool
	}{
		"not ready":                  {well("x", notReady), well("x"), true},
		"cordoned":                   {well("x", cordoned), well("x"), true},
		"beside another not ready":   {well("x", notReady), well("x", notReady), false},
		"beside one that is skipped": {well("x", notReady), well("x", has(skippedClaim())), true},
	} {
		t.Run(what, func(t *testing.T) {
			f := Fleet{Nodes: map[string]*Node{"a": tc.node, "b": tc.other}, Budgets: []Budget{budget(t, "maxUnavailable: 1")}}
			if d := Decide(Strategy{UID: own, MaxConcurrent: 1}, []Unit{outdated("a")}, f, noon); len(d.Start) > 0 {
				t.Errorf("by itself: %+v", d)
			}
			f.Leaving = "a"
			if d := Decide(Strategy{UID: own, MaxConcurrent: 1}, []Unit{outdated("a")}, f, noon); len(d.Start) > 0 != tc.starts {
				t.Errorf("%+v", d)
			}
		})
	}
}

// Taints that a rollout puts on nodes itself count only where they are named in full.
func TestFits(t *testing.T) {
	const outdated = "plan.outdated.moult.dev/os"
	for _, tc := range []struct {
		pattern, taint string
		want           bool
	}{
		{"a/b", "a/b", true},
		{"a/b", "a/bc", false},
		{"a/*", "a/b", true},
		{"a/*", "b/a/b", false},
		{"*", "b", true},
		{"*", corev1.TaintNodeUnschedulable, false},
		{"node.kubernetes.io/*", corev1.TaintNodeUnschedulable, false},
		{"node.kubernetes.io/*", corev1.TaintNodeUnreachable, true},
		{corev1.TaintNodeUnschedulable, corev1.TaintNodeUnschedulable, true},
		{"*", outdated, false},
		{"plan.outdated.moult.dev/*", outdated, false},
		{outdated, outdated, true},
		{"*", "moult.dev/quarantine", true},
		{"*", "example.com/outdated.moult.dev", true},
	} {
		if got := taintMatches(tc.pattern, tc.taint); got != tc.want {
			t.Errorf("%s matches %s: %v", tc.pattern, tc.taint, got)
		}
	}
}
