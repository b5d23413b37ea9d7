// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/events"
	"moult.dev/moult/internal/kind/budget"
	"moult.dev/moult/internal/metrics"
	"moult.dev/moult/internal/rollout"
	"moult.dev/moult/internal/status"
)

// report writes a budget's status if it changed, and then the Events. It says when to come back; zero is never.
func (c *Controller) report(ctx context.Context, stored *v1alpha1.NodeDisruptionBudget, of *rollout.Budget, nodes map[string]*rollout.Node, now time.Time) (time.Time, error) {
	account := of.Examine(nodes, now)
	b := stored.DeepCopy()
	b.Status = budget.Status(b, &account, now)
	b.Status.Holders = b.Status.Holders[:min(len(b.Status.Holders), v1alpha1.MaxListedUnits)]
	standing := status.Standing{Problem: of.Error, Limit: account.Limit, Notes: c.notes(stored, of, nodes)}
	status.SetBudgetConditions(b, standing, now)
	metrics.SetBudget(b.Name, &b.Status)
	if equality.Semantic.DeepEqual(stored.Status, b.Status) {
		return account.Next, nil
	}
	if err := c.write(ctx, stored, b.DeepCopy()); err != nil {
		return time.Time{}, client.IgnoreNotFound(err)
	}
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

// notes are more for the message: how many nodes are blocked by their own pods, and that Prometheus does not answer.
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
		notes = append(notes, "alerts are ignored: "+why)
	}
	return notes
}

// turned is the Event about gates that closed or opened; nil for none. An exhausted budget has no Event: every turn may exhaust one.
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
