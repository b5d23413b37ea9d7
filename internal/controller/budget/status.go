// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/events"
	"moult.dev/moult/internal/kind/budget"
	"moult.dev/moult/internal/metrics"
	"moult.dev/moult/internal/rollout"
	"moult.dev/moult/internal/status"
)

// report writes a budget's status if it changed, and then the Event. It returns when the clock alone can change the status;
// zero means never.
func (c *Controller) report(
	ctx context.Context, stored *v1alpha1.NodeDisruptionBudget, of *rollout.Budget, f *rollout.Fleet, now time.Time,
) (time.Time, error) {
	account := of.Examine(f, now)
	b := stored.DeepCopy()
	b.Status = budget.Status(b, &account, now)
	status.SetBudgetConditions(b, of.Error, account.Limit, notes(of, f.Nodes, &account), now)
	b.Status.Holders = b.Status.Holders[:min(len(b.Status.Holders), v1alpha1.MaxListedUnits)]
	metrics.SetBudget(b.Name, &b.Status)
	if equality.Semantic.DeepEqual(stored.Status, b.Status) {
		return account.Next, nil
	}
	base := stored.DeepCopy()
	if len(stored.Status.Conditions) == 0 {
		// No status is stored yet. The patch must contain the counts, even if they are zero.
		base.Status.Matched, base.Status.Unavailable = -1, -1
	}
	if err := c.client.Status().Patch(ctx, b.DeepCopy(), client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})); err != nil {
		return time.Time{}, client.IgnoreNotFound(fmt.Errorf("writing status, %w", err))
	}
	if e := gateChanged(&stored.Status, b); e != nil {
		c.events.Emit(*e)
	}
	return account.Next, nil
}

// notes returns additions to the message: in which domains nodes may be taken, how many nodes are blocked by their own pods, and that Prometheus
// does not answer.
func notes(of *rollout.Budget, nodes map[string]*rollout.Node, account *rollout.Account) (notes []string) {
	if only := of.OnlyIn(account.Domains); only != "" && (account.Limit < 0 || len(account.Holders) < account.Limit) {
		notes = append(notes, only)
	}
	blocked := 0
	for name := range of.NodeBlocks {
		if n := nodes[name]; n != nil && of.Selector.Matches(labels.Set(n.Labels)) {
			blocked++
		}
	}
	switch {
	case blocked == 1:
		notes = append(notes, "1 node is blocked by pods that are on it")
	case blocked > 1:
		notes = append(notes, fmt.Sprintf("%d nodes are blocked by pods that are on them", blocked))
	}
	if of.AlertsIgnored != "" {
		notes = append(notes, "alerts are ignored: "+of.AlertsIgnored)
	}
	return notes
}

// gateChanged returns the Event about gates that closed or opened; nil for none. An exhausted budget has no Event, because
// every turn may exhaust one.
func gateChanged(before *v1alpha1.NodeDisruptionBudgetStatus, b *v1alpha1.NodeDisruptionBudget) *events.Event {
	var was, is v1alpha1.BudgetBlock
	if len(before.BlockedBy) > 0 {
		was = before.BlockedBy[0]
	}
	if len(b.Status.BlockedBy) > 0 {
		is = b.Status.BlockedBy[0]
	}
	var e events.Event
	switch is.Gate {
	case was.Gate:
		return nil
	case "":
		e = events.BudgetOpened(b)
	case v1alpha1.ReasonBudgetInvalid:
		e = events.BudgetInvalid(b, is.Message)
	default:
		e = events.BudgetBlocked(b, is.Gate, is.Message)
	}
	return &e
}
