// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/events"
	"moult.dev/moult/internal/metrics"
	"moult.dev/moult/internal/rollout"
	"moult.dev/moult/internal/status"
)

// statusInterval is how often at most a budget's status is written.
const statusInterval = time.Second

// reports remembers when this process last wrote each budget's status. To forget it costs one write too early.
type reports struct {
	mu   sync.Mutex
	last map[string]time.Time
}

func newReports() *reports { return &reports{last: map[string]time.Time{}} }

// due is when a budget's status may be written next.
func (r *reports) due(budget string) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	last, ok := r.last[budget]
	if !ok {
		return time.Time{}
	}
	return last.Add(statusInterval)
}

func (r *reports) written(budget string, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last[budget] = now
}

func (r *reports) forget(budget string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.last, budget)
}

// report writes a budget's status if it changed, and then the Events. It says when to come back; zero is never.
func (c *Controller) report(ctx context.Context, stored *v1alpha1.NodeDisruptionBudget, of *rollout.Budget, nodes map[string]*rollout.Node, now time.Time) (time.Time, error) {
	account := of.Examine(nodes, now)
	b := stored.DeepCopy()
	fill(b, &account, now)
	standing := status.Standing{Problem: of.Error, Limit: account.Limit, Notes: c.notes(stored, of, nodes)}
	status.SetBudgetConditions(b, standing, now)
	metrics.SetBudget(b.Name, &b.Status)
	if equality.Semantic.DeepEqual(stored.Status, b.Status) {
		return account.Next, nil
	}
	if due := c.reports.due(b.Name); now.Before(due) {
		return due, nil
	}
	if err := c.write(ctx, stored, b.DeepCopy()); err != nil {
		return time.Time{}, client.IgnoreNotFound(err)
	}
	c.reports.written(b.Name, now)
	if e := turned(&stored.Status, b); e != nil {
		c.events.Emit(*e)
	}
	return account.Next, nil
}

// write patches a budget's status from how it is stored.
func (c *Controller) write(ctx context.Context, stored, b *v1alpha1.NodeDisruptionBudget) error {
	base := client.Object(stored)
	if len(stored.Status.Conditions) == 0 {
		// There is no status yet: one that counts no nodes looks the same in Go, but its counts are to be written.
		base = &metav1.PartialObjectMetadata{ObjectMeta: stored.ObjectMeta}
	}
	body, err := client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{}).Data(b)
	if err == nil {
		err = c.client.Status().Patch(ctx, b, client.RawPatch(types.MergePatchType, body))
	}
	if err != nil {
		return fmt.Errorf("writing status, %w", err)
	}
	return nil
}

// fill writes into a budget's status how it stands.
func fill(b *v1alpha1.NodeDisruptionBudget, account *rollout.Account, now time.Time) {
	s := &b.Status
	s.ObservedGeneration = b.Generation
	s.Matched, s.Unavailable = int32(account.Matched), int32(len(account.Holders))
	s.Domains = 0
	if b.Spec.TopologyKey != "" {
		s.Domains = int32(len(account.Domains))
	}
	s.Allowed = nil
	switch {
	case len(account.Blocks) > 0:
		s.Allowed = ptr.To[int32](0)
	case account.Limit >= 0:
		s.Allowed = ptr.To(int32(max(0, account.Limit-len(account.Holders))))
	}
	s.Holders = holders(account.Holders)
	s.BlockedBy = blockedBy(s.BlockedBy, account.Blocks, now)
}

// holders are the unavailable nodes that a status lists: first those that have been so for the longest time.
func holders(all []rollout.Holder) []v1alpha1.BudgetHolder {
	sorted := slices.Clone(all)
	slices.SortFunc(sorted, func(a, b rollout.Holder) int {
		if a.Since.IsZero() != b.Since.IsZero() {
			if a.Since.IsZero() {
				return 1
			}
			return -1
		}
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Node, b.Node))
	})
	var list []v1alpha1.BudgetHolder
	for _, h := range sorted[:min(len(sorted), v1alpha1.MaxListedUnits)] {
		list = append(list, v1alpha1.BudgetHolder{Node: h.Node, Cause: h.Cause, By: h.By, Message: h.Message, Since: stamp(h.Since)})
	}
	return list
}

// blockedBy keeps since when each gate has blocked.
func blockedBy(before []v1alpha1.BudgetBlock, blocks []rollout.Block, now time.Time) []v1alpha1.BudgetBlock {
	var list []v1alpha1.BudgetBlock
	for _, block := range blocks {
		since := *stamp(now)
		i := slices.IndexFunc(before, func(last v1alpha1.BudgetBlock) bool { return last.Gate == block.Gate })
		if i >= 0 {
			since = before[i].Since
		}
		list = append(list, v1alpha1.BudgetBlock{Gate: block.Gate, Message: block.Message, Since: since})
	}
	return list
}

// stamp is a time as the API stores it, in seconds, or nil for none.
func stamp(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	return &metav1.Time{Time: t.UTC().Truncate(time.Second)}
}

// notes say what else is worth knowing: which nodes are blocked for themselves, and that an answer is missing.
func (c *Controller) notes(stored *v1alpha1.NodeDisruptionBudget, of *rollout.Budget, nodes map[string]*rollout.Node) []string {
	var notes []string
	blocked := 0
	for name := range of.NodeBlocks {
		if n := nodes[name]; n != nil && (of.Selector == nil || of.Selector.Matches(labels.Set(n.Labels))) {
			blocked++
		}
	}
	switch {
	case blocked == 1:
		notes = append(notes, "1 node is blocked by pods that are on it")
	case blocked > 1:
		notes = append(notes, fmt.Sprintf("%d nodes are blocked by pods that are on them", blocked))
	}
	if why := c.fleet.Unreachable(stored); why != "" {
		notes = append(notes, "alerts are not heeded: "+why)
	}
	return notes
}

// turned is the Event of what began or ceased to block. That as many nodes are unavailable as may be is none: it is what
// every turn does.
func turned(before *v1alpha1.NodeDisruptionBudgetStatus, b *v1alpha1.NodeDisruptionBudget) *events.Event {
	var e events.Event
	switch was, is := gate(before), gate(&b.Status); {
	case was == is:
		return nil
	case is == "":
		e = events.BudgetOpened(b)
	case is == v1alpha1.ReasonBudgetInvalid:
		e = events.BudgetInvalid(b, b.Status.BlockedBy[0].Message)
	default:
		e = events.BudgetBlocked(b, is, b.Status.BlockedBy[0].Message)
	}
	return &e
}

// gate is the first that blocks, or "".
func gate(s *v1alpha1.NodeDisruptionBudgetStatus) v1alpha1.Reason {
	if len(s.BlockedBy) == 0 {
		return ""
	}
	return s.BlockedBy[0].Gate
}
