// SPDX-License-Identifier: Apache-2.0

package hostupdate

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/fleet"
	"moult.dev/moult/internal/node"
	"moult.dev/moult/internal/turn"
)

// drainOf is the drain of a turn's node.
func (p *pass) drainOf(t *unit) *turn.Drain {
	return &turn.Drain{
		Client: p.Client, Drainer: p.controller.drainer, Works: p.works, Options: p.drain, Of: t.of(p.world), Generation: p.rollout.Generation,
		Holder: p.Holder, Now: p.now,
	}
}

// cordon makes the node unschedulable and, in the same write, records whose pods are about to be evicted. A drain that would be refused is not
// begun.
func (p *pass) cordon(ctx context.Context, t *unit) error {
	claim := *t.Claim
	// Where somebody has lifted the cordon, the drain begins anew: what has come since is not to be taken for pods that a cordon does not keep away.
	claim.Cordoned = &metav1.Time{Time: p.now}
	also := calling(v1alpha1.LabelBeforeReboot, false, before(&p.host))
	if p.exclude {
		also = append(also, node.Excluding(nil))
	}
	written := func() {}
	if p.drains {
		recording, recorded, failure, err := p.drainOf(t).Begin(ctx)
		switch {
		case err != nil:
			return err
		case failure != nil:
			t.FailWith(*failure)
			return p.Fail(ctx, t)
		}
		also, written = append(also, recording...), recorded
	}
	if err := p.Hold(ctx, t, claim, node.Step{Cordon: true, Also: also}); err != nil {
		return err
	}
	written()
	log.FromContext(ctx).Info("node cordoned", "node", t.Node.Name)
	return nil
}

// drainNode takes a drain as far as it goes now.
func (p *pass) drainNode(ctx context.Context, t *unit) error {
	d := p.drainOf(t)
	o, err := d.Pass(ctx, t.Node, t.drainSince(p.world))
	t.Message = o.Message
	p.WakeAt(o.Wake)
	switch {
	case err != nil:
		return err
	case o.Failure != nil:
		t.FailWith(*o.Failure)
		return p.Fail(ctx, t)
	case !o.Done:
		return p.tell(ctx, t)
	case d.Announced(t.Node):
		return p.reboot(ctx, t)
	}
	// It is said on the node that it is drained, and then its host is told to reboot.
	p.WakeAt(p.now.Add(fleet.Coalesce)) // The node is another one then.
	return p.tell(ctx, t)
}

// tell says in the node's conditions how its turn stands.
func (p *pass) tell(ctx context.Context, t *unit) error {
	stage := turn.Drained
	switch c := t.Claim; {
	case c == nil || c.Failed != nil || c.Soaking != nil || c.Cordoned == nil && c.Rebooting == nil:
		return nil
	case !c.Drains || c.Rebooting == nil && p.now.Before(t.cordoned(p.world)):
		stage = turn.Maintained
	case c.Rebooting == nil && c.Changed == nil && !p.works.Of(t.of(p.world)).Drained:
		stage = turn.Draining
	}
	wake, err := p.drainOf(t).Tell(ctx, t.Node, stage)
	p.WakeAt(wake)
	return err
}

// cordoned is when the drain of a node that was cordoned begins, or has begun.
func (t *unit) cordoned(w *world) time.Time {
	if t.Claim.Cordoned == nil {
		return time.Time{}
	}
	return t.drainSince(w)
}
