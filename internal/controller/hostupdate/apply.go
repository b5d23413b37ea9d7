// SPDX-License-Identifier: Apache-2.0

package hostupdate

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/events"
	"moult.dev/moult/internal/fleet"
	"moult.dev/moult/internal/hostupdate"
	"moult.dev/moult/internal/metrics"
	"moult.dev/moult/internal/node"
	"moult.dev/moult/internal/rollout"
	"moult.dev/moult/internal/turn"
)

// settle takes each turn its next step, but for hosts that are only to be asked again.
func (p *pass) settle(ctx context.Context) error {
	var due []*unit
	for i := range p.turns {
		t := &p.turns[i]
		p.at(t.Wake)
		if t.Step != turn.StepNone && !t.again {
			due = append(due, t)
		}
	}
	return turn.Each(due, func(t *unit) error { return p.step(ctx, t) })
}

// askAgain asks hosts for what others have to offer, but for those that have been started with what they have.
func (p *pass) askAgain(ctx context.Context) error {
	var due []*unit
	for i := range p.turns {
		if t := &p.turns[i]; t.again && (t.Claim == nil || t.Claim.Failed != nil) {
			due = append(due, t)
		}
	}
	return turn.Each(due, func(t *unit) error { return p.step(ctx, t) })
}

func (p *pass) step(ctx context.Context, t *unit) error {
	switch t.Step {
	case stepAsk:
		return p.ask(ctx, t)
	case turn.StepAdopt:
		return p.adopt(ctx, t)
	case stepReturn:
		return p.giveBack(ctx, t)
	case stepPrepare:
		return p.hold(ctx, t, *t.Claim, node.Step{Also: []node.Also{forgetting(&t.report), ordering(&t.report, t.Claim)}})
	case stepPerform:
		return p.hold(ctx, t, *t.Claim, node.Step{Also: []node.Also{saying(&t.report, v1alpha1.HostActionPerform)}})
	case stepCall:
		return p.hold(ctx, t, *t.Claim, node.Step{Also: calling(v1alpha1.LabelBeforeReboot, true, before(&p.host))})
	case stepCordon:
		return p.cordon(ctx, t)
	case stepDrain:
		return p.drainNode(ctx, t)
	case stepReboot:
		return p.reboot(ctx, t)
	case stepWithdraw:
		return p.hold(ctx, t, *t.Claim, node.Step{Also: asking(t.Node, &t.report)})
	case stepChanged:
		return p.change(ctx, t)
	case turn.StepSoak:
		return p.soak(ctx, t)
	case turn.StepFinish:
		return p.finish(ctx, t)
	case turn.StepFail:
		return p.fail(ctx, t)
	case turn.StepRelease:
		return p.abandon(ctx, t)
	case turn.StepTaint:
		return node.Taint(ctx, p.client, t.Node, p.taint)
	case turn.StepUntaint:
		return node.Untaint(ctx, p.client, t.Node, p.taint)
	case stepTell:
		return p.tell(ctx, t)
	case turn.StepNone:
	}
	return nil
}

// hold writes the claim with a step.
func (p *pass) hold(ctx context.Context, t *unit, claim v1alpha1.Claim, s node.Step) error {
	s.Claim = claim
	if err := node.Write(ctx, p.client, t.Node, s); err != nil {
		return err
	}
	t.Claim = &claim
	t.Unit.Claimed = !claim.Parked()
	return nil
}

// ask lets the agent find out what its host has to offer.
func (p *pass) ask(ctx context.Context, t *unit) error {
	step := node.Step{Claim: v1alpha1.Claim{Rollout: p.holder}, Unclaimed: true, Also: asking(t.Node, &t.report)}
	if t.Claim == nil || t.Claim.Changed == nil {
		step.Also = append(step.Also, uncalling(t.Node, &p.host)...)
	}
	if err := node.Write(ctx, p.client, t.Node, step); err != nil {
		return err
	}
	p.world.asked.asked(t.Node.UID)
	p.mu.Lock()
	asked := question{latest: p.latest, again: p.memo.told[t.Node.UID].again}
	if t.again {
		before := t.report
		asked.again, asked.before, asked.node = p.now, &before, t.Node
	}
	p.memo.told[t.Node.UID] = asked
	p.mu.Unlock()
	log.FromContext(ctx).V(1).Info("host asked for updates", "node", t.Node.Name)
	return nil
}

func (p *pass) adopt(ctx context.Context, t *unit) error {
	claim := t.adoption(p.world)
	if err := p.hold(ctx, t, claim, node.Step{}); err != nil {
		return err
	}
	t.Unit.Since = claim.Since.Time
	log.FromContext(ctx).Info("node taken over in the middle of its reboot", "node", t.Node.Name)
	return nil
}

// giveBack gives a node back whose claim somebody has taken away: it still has the rollout's marks.
func (p *pass) giveBack(ctx context.Context, t *unit) error {
	claim := v1alpha1.Claim{Rollout: p.holder, UID: p.rollout.UID}
	return p.release(ctx, t.Node, claim, ending(t.Node, p.rollout.UID, &p.host))
}

// reboot tells the host to reboot, with the boot id that it has now: by that it is known that it has, and no agent does it twice.
func (p *pass) reboot(ctx context.Context, t *unit) error {
	claim := *t.Claim
	claim.Rebooting = &metav1.Time{Time: p.now}
	claim.BootID = t.Node.Status.NodeInfo.BootID
	if err := p.hold(ctx, t, claim, node.Step{Also: []node.Also{saying(&t.report, v1alpha1.HostActionReboot)}}); err != nil {
		return err
	}
	t.Message = ""
	if h := p.rollout.Spec.Health; h == nil || len(h.Pods) == 0 {
		p.world.works.Rest(t.Node.Name)
	}
	log.FromContext(ctx).Info("host told to reboot", "node", t.Node.Name, "revision", claim.Revision)
	p.happens(events.HostRebooting(p.rollout, t.Node.Name, hostupdate.VersionOf(&claim)))
	return nil
}

// change keeps that the host runs what it should, while its node is not healthy or hooks are waited for.
func (p *pass) change(ctx context.Context, t *unit) error {
	claim := *t.Claim
	if claim.Changed == nil {
		claim.Changed = &metav1.Time{Time: p.now}
	}
	var also []node.Also
	if hooks := after(&p.host); len(hooks) > 0 {
		also = calling(v1alpha1.LabelAfterReboot, true, hooks)
	}
	return p.hold(ctx, t, claim, node.Step{Also: also})
}

func (p *pass) soak(ctx context.Context, t *unit) error {
	claim := *t.Claim
	claim.Soaking = &metav1.Time{Time: p.now}
	if err := p.endMaintenance(ctx, t.Node, claim.Rollout); err != nil {
		return err
	}
	return p.hold(ctx, t, claim, node.Step{GiveBack: true, Also: uncalling(t.Node, &p.host)})
}

func (p *pass) finish(ctx context.Context, t *unit) error {
	claim := *t.Claim
	if err := p.release(ctx, t.Node, claim, ending(t.Node, p.rollout.UID, &p.host)); err != nil {
		return err
	}
	took := p.now.Sub(claim.Since.Time)
	version := hostupdate.VersionOf(&claim)
	if claim.Failed == nil {
		p.measure(took)
		metrics.ObserveTurn(p.name(), metrics.TurnUpdated, took)
	}
	if claim.Failed == nil || version == "" || hostupdate.CompareVersions(t.report.Version, version) == 0 {
		log.FromContext(ctx).Info("node updated", "node", t.Node.Name, "revision", claim.Revision, "took", took.String())
		p.happens(events.HostUpdated(p.rollout, t.Node.Name, version))
	} else {
		// What it failed with is not to be had any more, or not wanted.
		log.FromContext(ctx).Info("node released", "node", t.Node.Name, "runs", t.report.Version)
	}
	t.Claim, t.Message = nil, ""
	t.Unit.State, t.Unit.Claimed, t.Unit.Reason, t.Unit.Message, t.Unit.Skipped = v1alpha1.UnitUpdated, false, "", "", false
	t.Unit.Unoffered = hostupdate.Unoffered(&t.report, p.revision)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.memo.updated[t.Node.UID] = true
	return nil
}

func (p *pass) fail(ctx context.Context, t *unit) error {
	claim := *t.Claim
	failure := t.Failure
	claim.Failed = &failure
	claim.Failures++
	step := node.Step{GiveBack: true, Also: ending(t.Node, p.rollout.UID, &p.host)}
	if claim.Changed != nil {
		// Its node is not well: it is kept from pods, and hooks stay called, until it is.
		step = node.Step{Also: asking(t.Node, &t.report)}
	}
	err := p.endMaintenance(ctx, t.Node, claim.Rollout)
	if err == nil {
		err = p.hold(ctx, t, claim, step)
	}
	if err != nil {
		// It has not failed before that is written down: its node is still as the turn left it.
		t.Unit.State, t.Unit.Since, t.Unit.Reason, t.Unit.Message, t.Unit.Skipped = v1alpha1.UnitUpdating, claim.Since.Time, "", "", false
		t.Message = failure.Message
		return err
	}
	if s := p.rollout.Spec.Strategy; s != nil && !failure.Skipped {
		t.Unit.RetryAt = rollout.RetryAt(s.Retries, claim.Failures, failure.Time.Time)
	}
	log.FromContext(ctx).Info("node failed", "node", t.Node.Name, "reason", failure.Reason, "message", failure.Message)
	metrics.ObserveTurn(p.name(), metrics.TurnFailed, failure.Time.Sub(claim.Since.Time))
	p.happens(events.HostFailed(p.rollout, failure.Message))
	return nil
}

func (p *pass) abandon(ctx context.Context, t *unit) error {
	if err := p.release(ctx, t.Node, *t.Claim, ending(t.Node, p.rollout.UID, &p.host)); err != nil {
		return err
	}
	log.FromContext(ctx).Info("node released", "node", t.Node.Name)
	t.Claim, t.Message = nil, ""
	t.Unit.State, t.Unit.InTurn, t.Unit.Claimed, t.Unit.Skipped = v1alpha1.UnitOutdated, false, false, false
	t.Unit.Reason, t.Unit.Message, t.Unit.RetryAt = v1alpha1.ReasonHostSilent, "the host is being asked whether there is an update", time.Time{}
	return nil
}

// release gives the node back, and says on it that its maintenance is over.
func (c *Controller) release(ctx context.Context, n *corev1.Node, claim v1alpha1.Claim, also []node.Also) error {
	return turn.Release(ctx, c.client, n, claim, c.clock.Now(), also)
}

// endMaintenance says on the node that this rollout is no longer at work there.
func (c *Controller) endMaintenance(ctx context.Context, n *corev1.Node, rollout string) error {
	return turn.EndMaintenance(ctx, c.client, n, rollout, c.clock.Now())
}

// measure keeps an average of how long turns take, in which the latest count most. It begins anew with each revision.
func (p *pass) measure(took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rollout.Status.TurnSeconds = turn.Average(p.rollout.Status.TurnSeconds, took)
}

// clear takes away what a NodeRollout that is gone has left, or one of the same name before the present one. A host that was told to reboot is
// waited for.
func (c *Controller) clear(ctx context.Context, key types.NamespacedName, live types.UID, s fleet.Snapshot) (wake time.Time, err error) {
	holder := node.Holder(kind, key)
	var errs []error
	for _, n := range s.Objects {
		claims := s.Nodes[n.Name].Claims
		if live != "" && len(claims) == 0 {
			continue
		}
		left := slices.DeleteFunc(slices.Clone(claims), func(claim v1alpha1.Claim) bool {
			return claim.Rollout != holder || claim.UID == live || claim.Machine != ""
		})
		marks := n.Annotations[v1alpha1.AnnotationCordonedBy] == holder || n.Annotations[v1alpha1.AnnotationExcludedBy] == holder
		switch {
		case len(left) > 0:
			at, err := c.leave(ctx, n, left[0])
			if errs = append(errs, err); !at.IsZero() && (wake.IsZero() || at.Before(wake)) {
				wake = at
			}
		case live != "":
		case node.Tainted(n, turn.TaintOf(key.Name)):
			errs = append(errs, node.Untaint(ctx, c.client, n, turn.TaintOf(key.Name)))
		case marks && s.Nodes[n.Name].ClaimError == "":
			errs = append(errs, c.release(ctx, n, v1alpha1.Claim{Rollout: holder}, ending(n, "", nil)))
		}
	}
	return wake, turn.First(errs)
}

// leave gives a node back that a rollout has which is gone, unless its host is on its way through a reboot: then it says how long to wait.
func (c *Controller) leave(ctx context.Context, n *corev1.Node, claim v1alpha1.Claim) (wake time.Time, err error) {
	if claim.Rebooting != nil && claim.Changed == nil && claim.Soaking == nil && claim.Failed == nil {
		t := unit{node: n, known: fleet.NodeOf(n), claim: &claim}
		t.report, t.speaks = hostupdate.Read(n)
		if deadline := claim.Rebooting.Add(defaultRebootTimeout); !t.back() && c.clock.Now().Before(deadline) {
			return deadline, nil
		}
	}
	if err := c.release(ctx, n, claim, ending(n, claim.UID, nil)); err != nil {
		return wake, err
	}
	log.FromContext(ctx).Info("node released", "node", n.Name)
	return wake, nil
}
