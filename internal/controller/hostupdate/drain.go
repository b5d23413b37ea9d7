// SPDX-License-Identifier: Apache-2.0

package hostupdate

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/events"
	"moult.dev/moult/internal/kind/hostupdate"
	"moult.dev/moult/internal/node"
	"moult.dev/moult/internal/turn"
)

// drainOf is the drain of a turn's node.
func (p *pass) drainOf(t *hostupdate.Unit) *turn.Drain {
	return &turn.Drain{
		Client: p.Client, Drainer: p.controller.drainer, Works: p.controller.works, Options: p.drain, Of: turnOf(p.Key, t), Generation: p.w.Rollout.Generation,
		Holder: p.Holder, Now: p.w.Now,
	}
}

// cordon makes the node unschedulable, before its drain if there is one.
func (p *pass) cordon(ctx context.Context, t *hostupdate.Unit) error {
	also := callHooks(v1alpha1.LabelBeforeReboot, false, p.w.Hooks().BeforeReboot)
	if p.w.Exclude {
		also = append(also, node.Excluding)
	}
	var d *turn.Drain
	if p.w.Drains {
		d = p.drainOf(t)
	}
	return p.Cordon(ctx, t, d, also...)
}

// drainNode takes a drain as far as it goes now, and then orders the reboot.
func (p *pass) drainNode(ctx context.Context, t *hostupdate.Unit) error {
	if over, err := p.DrainNode(ctx, t, p.drainOf(t), p.w.DrainSince(t)); err != nil || !over {
		return err
	}
	return p.reboot(ctx, t)
}

// setConditions says in the node's conditions how its turn stands before the drain and after it.
func (p *pass) setConditions(ctx context.Context, t *hostupdate.Unit) error {
	c, stage := t.Claim, turn.Drained
	switch {
	case c.Cordoned == nil && c.Rebooting == nil:
		return nil
	case !c.Drains || c.Rebooting == nil && p.w.Now.Before(p.w.DrainSince(t)):
		stage = turn.Maintained
	}
	wake, err := p.drainOf(t).Tell(ctx, t.Node, stage)
	p.WakeAt(wake)
	return err
}

// reboot orders the reboot, with the boot id that the host has now: that id shows that it has rebooted, and no agent reboots it twice.
func (p *pass) reboot(ctx context.Context, t *hostupdate.Unit) error {
	claim := *t.Claim
	claim.Rebooting = &metav1.Time{Time: p.w.Now}
	claim.BootID = t.Node.Status.NodeInfo.BootID
	if err := p.Hold(ctx, t, claim, node.Step{Also: []node.Also{order(&t.Report, v1alpha1.HostActionReboot)}}); err != nil {
		return err
	}
	t.Message = ""
	if health := p.w.Rollout.Spec.Health; health == nil || len(health.Pods) == 0 {
		p.controller.works.Rest(t.Node.Name)
	}
	log.FromContext(ctx).Info("host told to reboot", "node", t.Node.Name, "revision", claim.Revision)
	p.Happened(events.HostRebooting(p.w.Rollout, t.Node.Name, hostupdate.VersionOf(&claim)))
	return nil
}
