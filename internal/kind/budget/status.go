// SPDX-License-Identifier: Apache-2.0

// Package budget computes the status of a NodeDisruptionBudget, purely, for its controller and for package view.
package budget

import (
	"cmp"
	"math"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/rollout"
)

// Status returns the budget's status from the engine's account, with all holders, and with unchanged conditions. now is the
// time since which newly closed gates block.
func Status(b *v1alpha1.NodeDisruptionBudget, account *rollout.Account, now time.Time) v1alpha1.NodeDisruptionBudgetStatus {
	s := v1alpha1.NodeDisruptionBudgetStatus{
		Conditions: b.Status.Conditions, ObservedGeneration: b.Generation, Matched: int32(account.Matched), Unavailable: int32(len(account.Holders)),
	}
	if b.Spec.TopologyKey != "" {
		s.Domains = int32(len(account.Domains))
	}
	switch {
	case len(account.Blocks) > 0:
		s.Allowed = ptr.To[int32](0)
	case account.Limit >= 0:
		s.Allowed = ptr.To(int32(max(0, account.Limit-len(account.Holders))))
	}
	for _, h := range byAge(account.Holders) {
		s.Holders = append(s.Holders, v1alpha1.BudgetHolder{Node: h.Node, Cause: h.Cause, By: h.By, Message: h.Message, Since: stamp(h.Since)})
	}
	for _, block := range account.Blocks {
		since := ptr.Deref(stamp(now), metav1.Time{})
		if i := slices.IndexFunc(b.Status.BlockedBy, func(before v1alpha1.BudgetBlock) bool { return before.Gate == block.Gate }); i >= 0 {
			since = b.Status.BlockedBy[i].Since
		}
		s.BlockedBy = append(s.BlockedBy, v1alpha1.BudgetBlock{Gate: block.Gate, Message: block.Message, Since: since})
	}
	return s
}

// byAge sorts holders by the time when they became unavailable, and keeps their order by name. Holders without a time are last.
func byAge(holders []rollout.Holder) []rollout.Holder {
	since := func(h *rollout.Holder) int64 {
		if h.Since.IsZero() {
			return math.MaxInt64
		}
		return h.Since.UnixNano()
	}
	sorted := slices.Clone(holders)
	slices.SortStableFunc(sorted, func(a, b rollout.Holder) int { return cmp.Compare(since(&a), since(&b)) })
	return sorted
}

// stamp returns a time as the API stores it, in seconds; nil for none.
func stamp(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	return &metav1.Time{Time: t.UTC().Truncate(time.Second)}
}
