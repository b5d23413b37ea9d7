// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"moult.dev/moult/api/v1alpha1"
)

const outside = "current time is not within configured window"

func TestDecide(t *testing.T) {
	berlin := time.FixedZone("CET", 3600)
	local := exclusive("other")
	local.Since = metav1.Time{Time: noon.Add(-time.Hour).In(berlin)}

	for name, tc := range map[string]struct {
		strategy Strategy
		units    []Unit
		fleet    Fleet
		want     Decision
	}{
		"nothing": {
			strategy: Strategy{MaxConcurrent: 1},
		},
		"what is updated or on its way is neither started nor waits": {
			strategy: Strategy{MaxConcurrent: 9},
			units:    []Unit{unit("a", v1alpha1.UnitUpdated), unit("b", v1alpha1.UnitUpdating), unit("c", v1alpha1.UnitSoaking)},
		},
		"lowest rank first, then by name": {
			strategy: Strategy{MaxConcurrent: 9},
			units:    []Unit{outdated("a", ranked(3)), outdated("d", ranked(2)), outdated("c", ranked(2)), outdated("b", ranked(1))},
			want:     Decision{Start: []string{"b", "c", "d", "a"}},
		},
		"rank 0 is first": {
			strategy: Strategy{MaxConcurrent: 1},
			units:    []Unit{outdated("a", ranked(1)), outdated("b", ranked(0))},
			want: Decision{
				Start:   []string{"b"},
				Waiting: []Wait{{Node: "a", Reason: v1alpha1.ReasonMaxConcurrent, Message: "1 of 1 slots taken (b)"}},
			},
		},

		"opted out": {
			strategy: Strategy{MaxConcurrent: 1},
			units:    []Unit{outdated("a", optsOut), outdated("b", ranked(9))},
			want: Decision{
				Start:   []string{"b"},
				Waiting: []Wait{{Node: "a", Reason: v1alpha1.ReasonOptedOut, Message: "the node's label opts it out"}},
			},
		},

		"a unit that can't be started says why itself": {
			strategy: Strategy{MaxConcurrent: 1},
			units:    []Unit{outdated("a", because(v1alpha1.ReasonWindowsImageMissing, "no image")), outdated("b", ranked(9))},
			want: Decision{
				Start:   []string{"b"},
				Waiting: []Wait{{Node: "a", Reason: v1alpha1.ReasonWindowsImageMissing, Message: "no image"}},
			},
		},

		"an open window": {
			strategy: Strategy{MaxConcurrent: 1, Window: window(t, "12:00", "12:00", "fri")},
			units:    []Unit{outdated("a")},
			want:     Decision{Start: []string{"a"}},
		},
		"a closed window says when it opens": {
			strategy: Strategy{MaxConcurrent: 1, Window: window(t, "22:00", "23:00", "fri")},
			units:    []Unit{outdated("a"), outdated("b")},
			want: Decision{
				Waiting: []Wait{
					{Node: "a", Reason: v1alpha1.ReasonOutsideWindow, Message: outside + ", it opens at 2026-11-20T22:00:00Z"},
					{Node: "b", Reason: v1alpha1.ReasonOutsideWindow, Message: outside + ", it opens at 2026-11-20T22:00:00Z"},
				},
				Next: noon.Add(10 * time.Hour),
			},
		},
		"a closed window in the rollout's own zone": {
			strategy: Strategy{MaxConcurrent: 1, Window: mustWindow(t, []string{"6"}, "01:30", "02:00", "Europe/Berlin")},
			units:    []Unit{outdated("a")},
			want: Decision{
				Waiting: []Wait{{Node: "a", Reason: v1alpha1.ReasonOutsideWindow, Message: outside + ", it opens at 2026-11-21T01:30:00+01:00"}},
				Next:    time.Date(2026, 11, 21, 0, 30, 0, 0, time.UTC),
			},
		},
		"a window that never opens": {
			strategy: Strategy{MaxConcurrent: 1, Window: window(t, "22:00", "23:00")},
			units:    []Unit{outdated("a")},
			want:     Decision{Waiting: []Wait{{Node: "a", Reason: v1alpha1.ReasonOutsideWindow, Message: outside + ", and it never opens"}}},
		},
		"a closed window with nothing to start wakes all the same": {
			strategy: Strategy{MaxConcurrent: 1, Window: window(t, "22:00", "23:00", "fri")},
			want:     Decision{Next: noon.Add(10 * time.Hour)},
		},
		"an invalid window starts nothing": {
			strategy: Strategy{MaxConcurrent: 1, WindowError: "what is 25:00?"},
			units:    []Unit{outdated("a")},
			want:     Decision{Waiting: []Wait{{Node: "a", Reason: v1alpha1.ReasonWindowInvalid, Message: "what is 25:00?"}}},
		},
		"an invalid window counts more than an open one": {
			strategy: Strategy{MaxConcurrent: 1, Window: window(t, "00:00", "23:59:59", everyDay...), WindowError: "what is 25:00?"},
			units:    []Unit{outdated("a")},
			want:     Decision{Waiting: []Wait{{Node: "a", Reason: v1alpha1.ReasonWindowInvalid, Message: "what is 25:00?"}}},
		},
		"a turn that goes on needs the window to start over": {
			strategy: Strategy{MaxConcurrent: 1, Window: window(t, "22:00", "23:00", "fri")},
			units:    []Unit{outdated("a", inTurn)},
			want: Decision{
				Waiting: []Wait{{Node: "a", Reason: v1alpha1.ReasonOutsideWindow, Message: outside + ", it opens at 2026-11-20T22:00:00Z", Holds: true}},
				Next:    noon.Add(10 * time.Hour),
			},
		},

		"another's exclusive claim": {
			strategy: Strategy{MaxConcurrent: 1},
			units:    []Unit{outdated("a"), outdated("b")},
			fleet:    nodesOf(map[string]*Node{"a": claimed(exclusive("other"))}),
			want: Decision{
				Start:   []string{"b"},
				Waiting: []Wait{{Node: "a", Reason: v1alpha1.ReasonClaimed, Message: "claimed by Plan/fleet/other since 2026-11-20T11:00:00Z"}},
			},
		},
		"another's claim is told in UTC": {
			strategy: Strategy{MaxConcurrent: 1},
			units:    []Unit{outdated("a")},
			fleet:    nodesOf(map[string]*Node{"a": claimed(local)}),
			want:     Decision{Waiting: []Wait{{Node: "a", Reason: v1alpha1.ReasonClaimed, Message: "claimed by Plan/fleet/other since 2026-11-20T11:00:00Z"}}},
		},
		"an exclusive rollout beside a shared claim": {
			strategy: Strategy{MaxConcurrent: 1},
			units:    []Unit{outdated("a")},
			fleet:    nodesOf(map[string]*Node{"a": claimed(shared("other"))}),
			want:     Decision{Waiting: []Wait{{Node: "a", Reason: v1alpha1.ReasonClaimed, Message: "claimed by Plan/fleet/other since 2026-11-20T11:00:00Z"}}},
		},
		"a shared rollout beside an exclusive claim": {
			strategy: Strategy{MaxConcurrent: 1, Shared: true},
			units:    []Unit{outdated("a")},
			fleet:    nodesOf(map[string]*Node{"a": claimed(exclusive("other"))}),
			want:     Decision{Waiting: []Wait{{Node: "a", Reason: v1alpha1.ReasonClaimed, Message: "claimed by Plan/fleet/other since 2026-11-20T11:00:00Z"}}},
		},
		"a shared rollout beside shared claims": {
			strategy: Strategy{MaxConcurrent: 1, Shared: true},
			units:    []Unit{outdated("a")},
			fleet:    nodesOf(map[string]*Node{"a": claimed(shared("other"), shared("third"))}),
			want:     Decision{Start: []string{"a"}},
		},
		"a rollout beside its own claim": {
			strategy: Strategy{MaxConcurrent: 1},
			units:    []Unit{outdated("a")},
			fleet:    nodesOf(map[string]*Node{"a": claimed(exclusive(own))}),
			want:     Decision{Start: []string{"a"}},
		},
		"a rollout that has become exclusive beside its own shared claim and another's": {
			strategy: Strategy{MaxConcurrent: 1},
			units:    []Unit{outdated("a")},
			fleet:    nodesOf(map[string]*Node{"a": claimed(shared(own), shared("other"))}),
			want:     Decision{Waiting: []Wait{{Node: "a", Reason: v1alpha1.ReasonClaimed, Message: "claimed by Plan/fleet/other since 2026-11-20T11:00:00Z"}}},
		},
		"the claim of a rollout of the same name, made before": {
			strategy: Strategy{MaxConcurrent: 1},
			units:    []Unit{outdated("a")},
			fleet:    nodesOf(map[string]*Node{"a": claimed(v1alpha1.Claim{Rollout: "Plan/fleet/own", UID: "before", Since: metav1.Time{Time: noon}})}),
			want:     Decision{Waiting: []Wait{{Node: "a", Reason: v1alpha1.ReasonClaimed, Message: "claimed by Plan/fleet/own since 2026-11-20T12:00:00Z"}}},
		},
		"the first claim in the way is named": {
			strategy: Strategy{MaxConcurrent: 1, Shared: true},
			units:    []Unit{outdated("a")},
			fleet:    nodesOf(map[string]*Node{"a": claimed(shared("third"), exclusive("other"))}),
			want:     Decision{Waiting: []Wait{{Node: "a", Reason: v1alpha1.ReasonClaimed, Message: "claimed by Plan/fleet/other since 2026-11-20T11:00:00Z"}}},
		},
		"unreadable claims": {
			strategy: Strategy{MaxConcurrent: 1, Shared: true},
			units:    []Unit{outdated("a"), outdated("b")},
			fleet:    nodesOf(map[string]*Node{"a": {ClaimError: "reading annotation, bad"}}),
			want: Decision{
				Start:   []string{"b"},
				Waiting: []Wait{{Node: "a", Reason: v1alpha1.ReasonClaimUnreadable, Message: "reading annotation, bad"}},
			},
		},

		"as many as the concurrency allows": {
			strategy: Strategy{MaxConcurrent: 2},
			units:    []Unit{outdated("a"), outdated("b"), outdated("c"), outdated("d")},
			want: Decision{
				Start: []string{"a", "b"},
				Waiting: []Wait{
					{Node: "c", Reason: v1alpha1.ReasonMaxConcurrent, Message: "2 of 2 slots taken (a, b)"},
					{Node: "d", Reason: v1alpha1.ReasonMaxConcurrent, Message: "2 of 2 slots taken (a, b)"},
				},
			},
		},
		"what is on its way holds a slot": {
			strategy: Strategy{MaxConcurrent: 3},
			units:    []Unit{unit("a", v1alpha1.UnitUpdating), unit("b", v1alpha1.UnitSoaking), outdated("c"), outdated("d")},
			want: Decision{
				Start:   []string{"c"},
				Waiting: []Wait{{Node: "d", Reason: v1alpha1.ReasonMaxConcurrent, Message: "3 of 3 slots taken (a, b, c)"}},
			},
		},
		"what is updated holds none": {
			strategy: Strategy{MaxConcurrent: 1},
			units:    []Unit{unit("a", v1alpha1.UnitUpdated), outdated("b")},
			want:     Decision{Start: []string{"b"}},
		},
		"a failed unit holds a slot, and waits before the others": {
			strategy: Strategy{MaxConcurrent: 2},
			units:    []Unit{outdated("a"), outdated("b"), failed("c")},
			want: Decision{
				Start: []string{"a"},
				Waiting: []Wait{
					{Node: "c", Reason: v1alpha1.ReasonJobFailed, Message: "c broke", Holds: true},
					{Node: "b", Reason: v1alpha1.ReasonMaxConcurrent, Message: "2 of 2 slots taken, 1 of them by failed nodes (c)"},
				},
			},
		},
		"failed units that hold every slot halt the rollout": {
			strategy: Strategy{MaxConcurrent: 1},
			units:    []Unit{failed("a"), outdated("b")},
			want: Decision{Waiting: []Wait{
				{Node: "a", Reason: v1alpha1.ReasonJobFailed, Message: "a broke", Holds: true},
				{Node: "b", Reason: v1alpha1.ReasonMaxConcurrent, Message: "1 of 1 slots taken, 1 of them by failed nodes (a)"},
			}},
		},
		"three holders are named": {
			strategy: Strategy{MaxConcurrent: 5},
			units: []Unit{
				unit("a", v1alpha1.UnitUpdating), unit("b", v1alpha1.UnitUpdating), unit("c", v1alpha1.UnitUpdating),
				unit("d", v1alpha1.UnitUpdating), unit("e", v1alpha1.UnitUpdating), outdated("f"),
			},
			want: Decision{Waiting: []Wait{{Node: "f", Reason: v1alpha1.ReasonMaxConcurrent, Message: "5 of 5 slots taken (a, b, c and 2 more)"}}},
		},
		"three failed holders are named": {
			strategy: Strategy{MaxConcurrent: 5},
			units:    []Unit{unit("a", v1alpha1.UnitUpdating), failed("b"), failed("c"), failed("d"), failed("e"), outdated("f")},
			want: Decision{Waiting: []Wait{
				{Node: "b", Reason: v1alpha1.ReasonJobFailed, Message: "b broke", Holds: true},
				{Node: "c", Reason: v1alpha1.ReasonJobFailed, Message: "c broke", Holds: true},
				{Node: "d", Reason: v1alpha1.ReasonJobFailed, Message: "d broke", Holds: true},
				{Node: "e", Reason: v1alpha1.ReasonJobFailed, Message: "e broke", Holds: true},
				{Node: "f", Reason: v1alpha1.ReasonMaxConcurrent, Message: "5 of 5 slots taken, 4 of them by failed nodes (b, c, d and 1 more)"},
			}},
		},
		"more in flight than the concurrency, since it was lowered": {
			strategy: Strategy{MaxConcurrent: 1},
			units:    []Unit{unit("a", v1alpha1.UnitUpdating), unit("b", v1alpha1.UnitUpdating), outdated("c")},
			want:     Decision{Waiting: []Wait{{Node: "c", Reason: v1alpha1.ReasonMaxConcurrent, Message: "2 of 1 slots taken (a, b)"}}},
		},
		"concurrency 0": {
			strategy: Strategy{},
			units:    []Unit{outdated("a"), outdated("b")},
			want: Decision{Waiting: []Wait{
				{Node: "a", Reason: v1alpha1.ReasonMaxConcurrent, Message: "the concurrency is 0, so no node is started"},
				{Node: "b", Reason: v1alpha1.ReasonMaxConcurrent, Message: "the concurrency is 0, so no node is started"},
			}},
		},
		"concurrency 0 while something is in flight": {
			strategy: Strategy{},
			units:    []Unit{unit("a", v1alpha1.UnitUpdating), failed("b"), outdated("c")},
			want: Decision{Waiting: []Wait{
				{Node: "b", Reason: v1alpha1.ReasonJobFailed, Message: "b broke", Holds: true},
				{Node: "c", Reason: v1alpha1.ReasonMaxConcurrent, Message: "the concurrency is 0, so no node is started"},
			}},
		},
		"a turn that goes on needs no other slot to start over": {
			strategy: Strategy{MaxConcurrent: 1},
			units:    []Unit{outdated("a", inTurn), outdated("b")},
			want: Decision{
				Start:   []string{"a"},
				Waiting: []Wait{{Node: "b", Reason: v1alpha1.ReasonMaxConcurrent, Message: "1 of 1 slots taken (a)"}},
			},
		},
		"turns that go on start over as far as a concurrency that was lowered allows, and keep their slots": {
			strategy: Strategy{MaxConcurrent: 1},
			units:    []Unit{outdated("a", inTurn), outdated("b", inTurn), outdated("c", ranked(1))},
			want: Decision{
				Start: []string{"a"},
				Waiting: []Wait{
					{Node: "b", Reason: v1alpha1.ReasonMaxConcurrent, Message: "2 of 1 slots taken (a, b)", Holds: true},
					{Node: "c", Reason: v1alpha1.ReasonMaxConcurrent, Message: "2 of 1 slots taken (a, b)"},
				},
			},
		},
		"a turn that goes on does not start over beside as many as are allowed": {
			strategy: Strategy{MaxConcurrent: 1},
			units:    []Unit{outdated("a", inTurn), unit("b", v1alpha1.UnitUpdating)},
			want: Decision{
				Waiting: []Wait{{Node: "a", Reason: v1alpha1.ReasonMaxConcurrent, Message: "2 of 1 slots taken (a, b)", Holds: true}},
			},
		},
		"a turn that goes on does not start over beside a failed one, where one is allowed": {
			strategy: Strategy{MaxConcurrent: 1},
			units:    []Unit{outdated("a", inTurn), failed("b")},
			want: Decision{
				Waiting: []Wait{
					{Node: "b", Reason: v1alpha1.ReasonJobFailed, Message: "b broke", Holds: true},
					{Node: "a", Reason: v1alpha1.ReasonMaxConcurrent, Message: "2 of 1 slots taken, 1 of them by failed nodes (b)", Holds: true},
				},
			},
		},
		"turns that go on start over, and others are started": {
			strategy: Strategy{MaxConcurrent: 3},
			units:    []Unit{outdated("a", inTurn), outdated("b", inTurn), outdated("c", ranked(1)), outdated("d", ranked(2))},
			want: Decision{
				Start:   []string{"a", "b", "c"},
				Waiting: []Wait{{Node: "d", Reason: v1alpha1.ReasonMaxConcurrent, Message: "3 of 3 slots taken (a, b, c)"}},
			},
		},
		"concurrency 0 starts nothing over either": {
			strategy: Strategy{},
			units:    []Unit{outdated("a", inTurn), outdated("b")},
			want: Decision{Waiting: []Wait{
				{Node: "a", Reason: v1alpha1.ReasonMaxConcurrent, Message: "the concurrency is 0, so no node is started", Holds: true},
				{Node: "b", Reason: v1alpha1.ReasonMaxConcurrent, Message: "the concurrency is 0, so no node is started"},
			}},
		},
		"a turn that goes on a node whose claims can't be read any more": {
			strategy: Strategy{MaxConcurrent: 1},
			units:    []Unit{outdated("a", inTurn), outdated("b", ranked(1))},
			fleet:    nodesOf(map[string]*Node{"a": {ClaimError: "bad"}}),
			want: Decision{Waiting: []Wait{
				{Node: "a", Reason: v1alpha1.ReasonClaimUnreadable, Message: "bad", Holds: true},
				{Node: "b", Reason: v1alpha1.ReasonMaxConcurrent, Message: "1 of 1 slots taken (a)"},
			}},
		},
		"what is excused holds no slot": {
			strategy: Strategy{MaxConcurrent: 1},
			units:    []Unit{unit("a", v1alpha1.UnitUpdating, excused), outdated("b", inTurn, excused, ranked(2)), outdated("c", ranked(1))},
			want: Decision{
				Start:   []string{"c"},
				Waiting: []Wait{{Node: "b", Reason: v1alpha1.ReasonMaxConcurrent, Message: "1 of 1 slots taken (c)"}},
			},
		},
		"what is excused takes a slot to start, as any other": {
			strategy: Strategy{MaxConcurrent: 1},
			units:    []Unit{outdated("a", excused, down, ranked(9)), outdated("b", ranked(1))},
			want: Decision{
				Start:   []string{"a"},
				Waiting: []Wait{{Node: "b", Reason: v1alpha1.ReasonMaxConcurrent, Message: "1 of 1 slots taken (a)"}},
			},
		},
		"what is down takes a slot, also beside": {
			strategy: Strategy{MaxConcurrent: 2, Claimless: true},
			units:    []Unit{outdated("a", ranked(1)), outdated("b", down, ranked(9)), outdated("c", ranked(2)), outdated("d", down, ranked(8))},
			want: Decision{
				Start: []string{"d", "b"},
				Waiting: []Wait{
					{Node: "a", Reason: v1alpha1.ReasonMaxConcurrent, Message: "2 of 2 slots taken (d, b)"},
					{Node: "c", Reason: v1alpha1.ReasonMaxConcurrent, Message: "2 of 2 slots taken (d, b)"},
				},
			},
		},
		"beside a shared claim of another": {
			strategy: Strategy{MaxConcurrent: 3, Claimless: true, Shared: true},
			units:    []Unit{outdated("a"), outdated("b"), outdated("c")},
			fleet:    nodesOf(map[string]*Node{"a": claimed(shared("other")), "b": claimed(skippedClaim()), "c": {ClaimError: "bad"}}),
			want: Decision{
				Start: []string{"b"},
				Waiting: []Wait{
					{Node: "a", Reason: v1alpha1.ReasonClaimed, Message: "claimed by Plan/fleet/other since 2026-11-20T11:00:00Z"},
					{Node: "c", Reason: v1alpha1.ReasonClaimUnreadable, Message: "bad"},
				},
			},
		},
		"who is kept back for another reason takes no slot": {
			strategy: Strategy{MaxConcurrent: 1},
			units: []Unit{
				outdated("a", ranked(1), optsOut), outdated("b", ranked(2)), outdated("c", ranked(3)),
				outdated("d", ranked(4), because(v1alpha1.ReasonWindowsImageMissing, "no image")), outdated("e", ranked(5)),
			},
			fleet: nodesOf(map[string]*Node{"b": claimed(exclusive("other")), "e": {ClaimError: "bad"}}),
			want: Decision{
				Start: []string{"c"},
				Waiting: []Wait{
					{Node: "a", Reason: v1alpha1.ReasonOptedOut, Message: "the node's label opts it out"},
					{Node: "b", Reason: v1alpha1.ReasonClaimed, Message: "claimed by Plan/fleet/other since 2026-11-20T11:00:00Z"},
					{Node: "d", Reason: v1alpha1.ReasonWindowsImageMissing, Message: "no image"},
					{Node: "e", Reason: v1alpha1.ReasonClaimUnreadable, Message: "bad"},
				},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			tc.strategy.UID = own
			before := slices.Clone(tc.units)
			got := Decide(tc.strategy, tc.units, tc.fleet, noon)
			if diff := cmp.Diff(tc.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, tc.units); diff != "" {
				t.Errorf("changed the units that it was given:\n%s", diff)
			}
			if diff := cmp.Diff(got, Decide(tc.strategy, tc.units, tc.fleet, noon)); diff != "" {
				t.Errorf("the same question got another answer:\n%s", diff)
			}
		})
	}
}

// A unit that everything keeps back hears of one obstacle after the other, in the order of the chain, as they are removed.
func TestDecideOrderOfChecks(t *testing.T) {
	u := outdated("a", optsOut, because(v1alpha1.ReasonWindowsImageMissing, "no image"))
	lost := []Unit{lost("x"), lost("y")}
	s := Strategy{
		UID: own, Error: "bad", Paused: true, MaxFailures: ptr.To(1), WindowError: "bad", Window: window(t, "22:00", "23:00", "fri"),
		Waves: []Wave{{Name: "first", Selector: labels.Nothing()}},
	}
	spoiled := v1alpha1.Claim{Rollout: "Plan/fleet/other", UID: "other"}
	fleet := nodesOf(map[string]*Node{"a": {Name: "a", ClaimError: "bad", Labels: map[string]string{"zone": "x"}}, "b": well("y", notReady)})
	b := budget(t, "{selector: {matchExpressions: [{key: zone, operator: Resembles}]}, paused: true, topologyKey: zone, maxUnavailable: 1}")
	b.Windows = []CronWindow{*cronWindow(t, "0 22 * * *", time.Hour, "")}
	b.Blocks = []Block{{v1alpha1.ReasonAlertsActive, "alert"}}
	fleet.Budgets = []Budget{b}

	for _, step := range []struct {
		want   v1alpha1.Reason
		remove func()
	}{
		{v1alpha1.ReasonOptedOut, func() { u.OptedOut = false }},
		{v1alpha1.ReasonWindowsImageMissing, func() { u.Reason = "" }},
		{v1alpha1.ReasonStrategyInvalid, func() { s.Error = "" }},
		{v1alpha1.ReasonPaused, func() { s.Paused = false }},
		{v1alpha1.ReasonHalted, func() { lost = nil }},
		{v1alpha1.ReasonWindowInvalid, func() { s.WindowError = "" }},
		{v1alpha1.ReasonOutsideWindow, func() { s.Window = nil }},
		{v1alpha1.ReasonWavePending, func() { s.Waves = nil }},
		{v1alpha1.ReasonClaimUnreadable, func() { fleet.Nodes["a"].ClaimError, fleet.Nodes["a"].Claims = "", []v1alpha1.Claim{spoiled} }},
		{v1alpha1.ReasonClaimed, func() { fleet.Nodes["a"].Claims = nil }},
		{v1alpha1.ReasonMaxConcurrent, func() { s.MaxConcurrent = 1 }},
		{v1alpha1.ReasonBudgetInvalid, func() { fleet.Budgets[0].Error = "" }},
		{v1alpha1.ReasonBudgetPaused, func() { fleet.Budgets[0].Paused = false }},
		{v1alpha1.ReasonOutsideBudgetWindow, func() { fleet.Budgets[0].Windows = nil }},
		{v1alpha1.ReasonAlertsActive, func() { fleet.Budgets[0].Blocks = nil }},
		{v1alpha1.ReasonMaxDomains, func() { fleet.Nodes["b"].Labels["zone"] = "x" }},
		{v1alpha1.ReasonBudgetExhausted, func() {
			fleet.Nodes["b"] = well("x")
		}},
	} {
		fleet.Nodes["a"].Conditions = well("x").Conditions
		d := Decide(s, append(slices.Clone(lost), u), fleet, noon)
		if n := len(d.Waiting); len(d.Start) > 0 || n == 0 || d.Waiting[n-1].Reason != step.want {
			t.Fatalf("got %+v, want %s", d, step.want)
		}
		step.remove()
	}
	if d := Decide(s, []Unit{u}, fleet, noon); len(d.Waiting) > 0 || len(d.Start) != 1 {
		t.Errorf("got %+v with nothing in the way", d)
	}
}

func TestHoldsSlot(t *testing.T) {
	for _, tc := range []struct {
		unit Unit
		want bool
	}{
		{unit("a", v1alpha1.UnitOutdated), false},
		{unit("a", v1alpha1.UnitOutdated, inTurn), true},
		{unit("a", v1alpha1.UnitUpdating), true},
		{unit("a", v1alpha1.UnitSoaking), true},
		{unit("a", v1alpha1.UnitFailed), true},
		{unit("a", v1alpha1.UnitUpdated), false},
	} {
		if got := tc.unit.HoldsSlot(); got != tc.want {
			t.Errorf("%s (in a turn: %v) holds a slot: %v", tc.unit.State, tc.unit.InTurn, got)
		}
		if tc.unit.Excused = true; tc.unit.HoldsSlot() {
			t.Errorf("%s (in a turn: %v) holds a slot, and is excused", tc.unit.State, tc.unit.InTurn)
		}
	}
}
