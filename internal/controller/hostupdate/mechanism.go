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
	"moult.dev/moult/internal/rollout"
	"moult.dev/moult/internal/turn"
)

// pass is one reconcile of a NodeRollout that exists.
type pass struct {
	*turn.Pass[*unit]
	*world
	controller *Controller
	problem    error // why the spec can't be carried out
}

var _ turn.Mechanism[*unit] = hosts{}

// hosts is the pass as the engine sees it: the agents of hosts change their nodes.
type hosts struct{ *pass }

// Strategy of the rollout.
func (h hosts) Strategy(total int) rollout.Strategy {
	h.now = h.Now // A claim begins when the rollout is admitted.
	r := h.rollout
	s := rollout.New(r.Spec.Strategy, 1, total)
	s.UID, s.Revision, s.Drains = r.UID, h.revision, h.drains
	s.OwnNode, s.Health = h.own, rollout.NewHealth(r.Spec.Health)
	s.Wave = h.Waves.Latest(h.Key, r.UID, r.Status.Wave)
	s.Approved = r.Annotations[v1alpha1.AnnotationApprove]
	return s
}

// Start claims a node and tells its host to prepare the update.
func (h hosts) Start(t *unit) *turn.Write {
	if !t.speaks {
		return nil
	}
	claim := t.newClaim(h.world)
	also := append(uncalling(t.Node, &h.host), ordering(&t.report, &claim))
	return &turn.Write{Step: node.Step{Claim: claim, Also: also}, Then: func() { h.Reports.Start(h.UID, t.Node.Name) }}
}

// Take takes a step that only host updates have.
func (h hosts) Take(ctx context.Context, t *unit) error {
	switch t.Step {
	case stepAsk:
		return h.ask(ctx, t)
	case turn.StepAdopt:
		return h.adopt(ctx, t)
	case stepReturn:
		claim := v1alpha1.Claim{Rollout: h.Holder, UID: h.UID}
		return h.controller.release(ctx, t.Node, claim, ending(t.Node, h.UID, &h.host))
	case stepPrepare:
		return h.Hold(ctx, t, *t.Claim, node.Step{Also: []node.Also{forgetting(&t.report), ordering(&t.report, t.Claim)}})
	case stepPerform:
		return h.Hold(ctx, t, *t.Claim, node.Step{Also: []node.Also{saying(&t.report, v1alpha1.HostActionPerform)}})
	case stepCall:
		return h.Hold(ctx, t, *t.Claim, node.Step{Also: calling(v1alpha1.LabelBeforeReboot, true, before(&h.host))})
	case stepCordon:
		return h.cordon(ctx, t)
	case stepDrain:
		return h.drainNode(ctx, t)
	case stepReboot:
		return h.reboot(ctx, t)
	case stepWithdraw:
		return h.Hold(ctx, t, *t.Claim, node.Step{Also: asking(t.Node, &t.report)})
	case stepChanged:
		return h.change(ctx, t)
	case stepTell:
		return h.tell(ctx, t)
	default:
		return nil
	}
}

// Soak of a node that is healthy.
func (h hosts) Soak(t *unit) turn.Write {
	return turn.Write{Step: node.Step{Also: uncalling(t.Node, &h.host)}}
}

// Finish asks the host again for updates.
func (h hosts) Finish(t *unit) turn.Write {
	claim := *t.Claim
	return turn.Write{Step: node.Step{Also: ending(t.Node, h.UID, &h.host)}, Then: func() {
		version := hostupdate.VersionOf(&claim)
		if claim.Failed == nil || version == "" || hostupdate.CompareVersions(t.report.Version, version) == 0 {
			h.Happened(events.HostUpdated(h.rollout, t.Node.Name, version))
		}
		t.Unit.Unoffered = hostupdate.Unoffered(&t.report, h.revision)
		h.memo.mu.Lock()
		defer h.memo.mu.Unlock()
		h.memo.updated[t.Node.UID] = true
	}}
}

// Fail returns the node to the scheduler, except one that is changed and not healthy: it is kept from pods, and its hooks stay called.
func (h hosts) Fail(t *unit) turn.Write {
	step := node.Step{GiveBack: true, Also: ending(t.Node, h.UID, &h.host)}
	if t.Claim.Changed != nil {
		step = node.Step{Also: asking(t.Node, &t.report)}
	}
	return turn.Write{Step: step, Then: func() { h.Happened(events.HostFailed(h.rollout, t.Failure.Message)) }}
}

// Release ends what the host was told.
func (h hosts) Release(t *unit) turn.Write {
	return turn.Write{Step: node.Step{Also: ending(t.Node, h.UID, &h.host)}, Then: func() {
		t.Unit.Reason, t.Unit.Message = v1alpha1.ReasonHostSilent, "the host is being asked whether there is an update"
	}}
}

// ask lets the agent find out what its host has to offer.
func (p *pass) ask(ctx context.Context, t *unit) error {
	step := node.Step{Claim: v1alpha1.Claim{Rollout: p.Holder}, Unclaimed: true, Also: asking(t.Node, &t.report)}
	if t.Claim == nil || t.Claim.Changed == nil {
		step.Also = append(step.Also, uncalling(t.Node, &p.host)...)
	}
	if err := node.Write(ctx, p.Client, t.Node, step); err != nil {
		return err
	}
	p.asked.asked(t.Node.UID)
	p.memo.asked(t, p.latest, p.now)
	log.FromContext(ctx).V(1).Info("host asked for updates", "node", t.Node.Name)
	return nil
}

func (p *pass) adopt(ctx context.Context, t *unit) error {
	claim := t.adoption(p.world)
	if err := p.Hold(ctx, t, claim, node.Step{}); err != nil {
		return err
	}
	t.Unit.Since = claim.Since.Time
	log.FromContext(ctx).Info("node adopted in the middle of its reboot", "node", t.Node.Name)
	return nil
}

// reboot tells the host to reboot, with the boot id that it has now: that id shows that the host has rebooted, and no agent reboots it twice.
func (p *pass) reboot(ctx context.Context, t *unit) error {
	claim := *t.Claim
	claim.Rebooting = &metav1.Time{Time: p.now}
	claim.BootID = t.Node.Status.NodeInfo.BootID
	if err := p.Hold(ctx, t, claim, node.Step{Also: []node.Also{saying(&t.report, v1alpha1.HostActionReboot)}}); err != nil {
		return err
	}
	t.Message = ""
	if health := p.rollout.Spec.Health; health == nil || len(health.Pods) == 0 {
		p.works.Rest(t.Node.Name)
	}
	log.FromContext(ctx).Info("host told to reboot", "node", t.Node.Name, "revision", claim.Revision)
	p.Happened(events.HostRebooting(p.rollout, t.Node.Name, hostupdate.VersionOf(&claim)))
	return nil
}

// change records that the host runs what it should, while its node is not healthy or hooks are waited for.
func (p *pass) change(ctx context.Context, t *unit) error {
	claim := *t.Claim
	if claim.Changed == nil {
		claim.Changed = &metav1.Time{Time: p.now}
	}
	var also []node.Also
	if hooks := after(&p.host); len(hooks) > 0 {
		also = calling(v1alpha1.LabelAfterReboot, true, hooks)
	}
	return p.Hold(ctx, t, claim, node.Step{Also: also})
}
