// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"moult.dev/moult/internal/drain"
	"moult.dev/moult/internal/kind/plan"
	"moult.dev/moult/internal/node"
	"moult.dev/moult/internal/turn"
)

// drainOf is the drain of a turn's node; nil where the turn only cordons it, or the Plan does not ask for a drain any more.
func (p *pass) drainOf(t *plan.Unit) (*turn.Drain, error) {
	if !t.Claim.Drains || p.w.Plan.Spec.Drain == nil {
		return nil, nil
	}
	options, err := drain.OptionsOfPlan(p.w.Plan.Spec.Drain)
	if err != nil {
		return nil, fmt.Errorf("reading spec.drain, %w", err)
	}
	return &turn.Drain{
		Client: p.Client, Drainer: p.controller.drainer, Works: p.controller.works, Options: options,
		Of:         turn.Of{Rollout: p.Key, Node: t.Node.Name, Turn: t.Claim.Turn},
		Generation: p.w.Plan.Generation, Holder: p.Holder, Now: p.w.Now,
	}, nil
}

// cordon makes the node unschedulable, before a drain if there is one.
func (p *pass) cordon(ctx context.Context, t *plan.Unit) error {
	d, err := p.drainOf(t)
	if err != nil {
		return err
	}
	var also []node.Also
	if d != nil && ptr.Deref(p.w.Plan.Spec.Drain.ExcludeFromLoadBalancers, true) {
		also = append(also, node.Excluding)
	}
	return p.Cordon(ctx, t, d, also...)
}

// drainNode takes the node's drain as far as it goes now, and records in the claim when it is over: the Job's pod waits for that.
func (p *pass) drainNode(ctx context.Context, t *plan.Unit) error {
	d, err := p.drainOf(t)
	if err != nil {
		return err
	}
	if d != nil {
		if over, err := p.DrainNode(ctx, t, d, t.Claim.Cordoned.Time); err != nil || !over {
			return err
		}
	}
	claim := *t.Claim
	claim.Drained = &metav1.Time{Time: p.w.Now}
	return p.Hold(ctx, t, claim, node.Step{})
}

// draining are the nodes that are drained now.
func (p *pass) draining() map[string]bool {
	nodes := map[string]bool{}
	for _, t := range p.Turns {
		if c := t.Claim; c != nil && c.Drains && c.Cordoned != nil && c.Drained == nil && c.Failed == nil {
			nodes[t.Node.Name] = true
		}
	}
	return nodes
}
