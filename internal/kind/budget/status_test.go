// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/rollout"
)

var morning = time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)

func block(gate v1alpha1.Reason, message string) rollout.Block {
	return rollout.Block{Gate: gate, Message: message}
}

func TestStatus(t *testing.T) {
	two := []rollout.Holder{{Node: "a"}, {Node: "b"}}
	for name, tc := range map[string]struct {
		account     rollout.Account
		topologyKey string
		allowed     *int32
		domains     int32
	}{
		"no limit":            {rollout.Account{Matched: 5, Limit: -1, Holders: two}, "", nil, 0},
		"no limit, blocked":   {rollout.Account{Matched: 5, Limit: -1, Blocks: []rollout.Block{block(v1alpha1.ReasonPodsBlock, "x")}}, "", ptr.To[int32](0), 0},
		"room":                {rollout.Account{Matched: 5, Limit: 3, Holders: two}, "", ptr.To[int32](1), 0},
		"room, blocked":       {rollout.Account{Matched: 5, Limit: 3, Holders: two, Blocks: []rollout.Block{block(v1alpha1.ReasonPodsBlock, "x")}}, "", ptr.To[int32](0), 0},
		"full":                {rollout.Account{Matched: 5, Limit: 2, Holders: two}, "", ptr.To[int32](0), 0},
		"more than full":      {rollout.Account{Matched: 5, Limit: 1, Holders: two}, "", ptr.To[int32](0), 0},
		"domains":             {rollout.Account{Matched: 5, Limit: 2, Holders: two, Domains: map[string]int{"x": 1, "y": 1}}, "zone", ptr.To[int32](0), 2},
		"domains, not asked":  {rollout.Account{Matched: 5, Limit: 2, Holders: two, Domains: map[string]int{"": 2}}, "", ptr.To[int32](0), 0},
		"nothing is selected": {rollout.Account{Limit: -1}, "", nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			b := &v1alpha1.NodeDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Generation: 4}}
			b.Spec.TopologyKey = tc.topologyKey
			got := Status(b, &tc.account, morning)
			want := v1alpha1.NodeDisruptionBudgetStatus{
				ObservedGeneration: 4, Matched: int32(tc.account.Matched), Unavailable: int32(len(tc.account.Holders)),
				Allowed: tc.allowed, Domains: tc.domains, Holders: got.Holders, BlockedBy: got.BlockedBy,
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// First come those that have been unavailable for the longest time; of those of the same age, and of those of which it is
// not known, the first by name.
func TestHolders(t *testing.T) {
	var all []rollout.Holder
	for i := range 30 {
		all = append(all, rollout.Holder{Node: fmt.Sprintf("n%02d", i), Cause: v1alpha1.CauseUnschedulable})
	}
	all[29].Since, all[29].Cause, all[29].By = morning.Add(-time.Hour), v1alpha1.CauseClaimed, "Plan/a/b"
	all[28].Since = morning
	all[27].Since = morning
	var names []string
	list := Status(&v1alpha1.NodeDisruptionBudget{}, &rollout.Account{Holders: all}, morning).Holders
	for _, h := range list {
		names = append(names, h.Node)
	}
	want := []string{"n29", "n27", "n28"}
	for i := range 27 {
		want = append(want, fmt.Sprintf("n%02d", i))
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	first := v1alpha1.BudgetHolder{Node: "n29", Cause: v1alpha1.CauseClaimed, By: "Plan/a/b", Since: &metav1.Time{Time: morning.Add(-time.Hour)}}
	if diff := cmp.Diff(first, list[0]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if list[3].Since != nil {
		t.Errorf("since %s", list[3].Since)
	}
}

// Since when a gate is closed is kept for as long as it is, whatever it says.
func TestBlockedBy(t *testing.T) {
	var b v1alpha1.NodeDisruptionBudget
	blockedBy := func(at time.Time, blocks ...rollout.Block) []v1alpha1.BudgetBlock {
		b.Status = Status(&b, &rollout.Account{Blocks: blocks}, at)
		return b.Status.BlockedBy
	}
	blockedBy(morning, block(v1alpha1.ReasonBudgetPaused, "it is paused"), block(v1alpha1.ReasonPodsBlock, "x"), block(v1alpha1.ReasonPodsBlock, "y"))
	then := blockedBy(morning.Add(time.Hour), block(v1alpha1.ReasonPodsBlock, "z"), block(v1alpha1.ReasonAlertsActive, "a"))
	want := []v1alpha1.BudgetBlock{
		{Gate: v1alpha1.ReasonPodsBlock, Message: "z", Since: metav1.Time{Time: morning}},
		{Gate: v1alpha1.ReasonAlertsActive, Message: "a", Since: metav1.Time{Time: morning.Add(time.Hour)}},
	}
	if diff := cmp.Diff(want, then); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := blockedBy(morning); got != nil {
		t.Errorf("got %v", got)
	}
}
