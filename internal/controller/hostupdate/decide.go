// SPDX-License-Identifier: Apache-2.0

package hostupdate

import (
	"context"
	"reflect"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/fleet"
	"moult.dev/moult/internal/node"
	"moult.dev/moult/internal/rollout"
	"moult.dev/moult/internal/turn"
)

// start asks who goes next, and starts them. Nodes are claimed under the fleet's lock, on what is to be seen there: what has
// been decided before was decided on an older look. With the claim goes the first order to the host.
func (p *pass) start(ctx context.Context) error {
	p.decide(p.world.fleet)
	var err error
	if len(p.decision.Start) > 0 {
		began := p.clock.Now()
		err = p.Controller.fleet.Admit(ctx, func(now fleet.Snapshot) error {
			p.cost += p.clock.Since(began)
			before := p.now
			p.now = p.clock.Now() // To be let in may have taken long.
			if fleet.Elapsed(before, p.now) || now.Version != p.nodesVersion || !reflect.DeepEqual(now.Budgets, p.world.fleet.Budgets) {
				p.decide(now.Fleet) // Otherwise the answer would be the same.
			}
			return p.claim(ctx)
		})
	}
	log.FromContext(ctx).V(1).Info("decided", "start", p.decision.Start, "waiting", len(p.decision.Waiting), "next", p.decision.Next)
	p.at(p.decision.Next)
	return err
}

// decide asks the engine.
func (p *pass) decide(f rollout.Fleet) {
	began := p.clock.Now()
	defer func() { p.cost += p.clock.Since(began) }()
	units := p.memo.units[:0]
	total := 0
	for i := range p.turns {
		t := &p.turns[i]
		if t.Counted && (!t.Unit.OptedOut || t.Unit.State != v1alpha1.UnitOutdated) {
			total++
		}
		if t.Counted || t.Unit.HoldsSlot() {
			units = append(units, t.Unit)
		}
	}
	p.memo.units = units
	s := p.strategy(total)
	if slices.ContainsFunc(s.Order, func(o v1alpha1.Order) bool { return o.By == v1alpha1.OrderFewestEvictionsFirst }) {
		f.Nodes = p.Controller.fleet.CountEvictions(f.Nodes)
	}
	p.decision = rollout.Decide(s, units, f, p.now)
	p.rollout.Status.Wave = p.waves.Keep(p.key(), p.rollout.UID, p.decision.Wave)
	p.queued.Set(p.key(), slices.ContainsFunc(p.decision.Waiting, fleet.ForBudget))
}

// strategy is the rollout's, for so many nodes.
func (p *pass) strategy(total int) rollout.Strategy {
	s := rollout.New(p.rollout.Spec.Strategy, 1, total)
	s.UID, s.Revision, s.Drains = p.rollout.UID, p.revision, p.drains
	s.OwnNode, s.Health = p.options.NodeName, rollout.NewHealth(p.rollout.Spec.Health)
	s.Wave = p.waves.Latest(p.key(), p.rollout.UID, p.rollout.Status.Wave)
	s.Approved = p.rollout.Annotations[v1alpha1.AnnotationApprove]
	return s
}

// claim claims the nodes that the decision names, and tells their hosts to prepare the update.
func (p *pass) claim(ctx context.Context) error {
	names := make(map[string]bool, len(p.decision.Start))
	for _, name := range p.decision.Start {
		names[name] = true
	}
	var chosen []*unit
	for i := range p.turns {
		if t := &p.turns[i]; names[t.Node.Name] && t.speaks && t.Unit.State != v1alpha1.UnitUpdated {
			chosen = append(chosen, t)
		}
	}
	return turn.Each(chosen, func(t *unit) error {
		claim := t.newClaim(p.world)
		if err := p.hold(ctx, t, claim, node.Step{Also: append(uncalling(t.Node, &p.host), ordering(&t.report, &claim))}); err != nil {
			p.waits(t, v1alpha1.ReasonClaimLost, err)
			return err
		}
		t.Unit.State, t.Unit.Since, t.Unit.Reason, t.Unit.Message = v1alpha1.UnitUpdating, claim.Since.Time, "", ""
		t.Unit.InTurn, t.Unit.Skipped, t.Message = false, false, ""
		p.reports.Start(p.rollout.UID, t.Node.Name)
		log.FromContext(ctx).Info("node claimed", "node", t.Node.Name, "revision", claim.Revision)
		return nil
	})
}

// waits notes why a unit that was to start did not.
func (p *pass) waits(t *unit, reason v1alpha1.Reason, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.decision.Waiting = append([]rollout.Wait{{Node: t.Node.Name, Reason: reason, Message: err.Error()}}, p.decision.Waiting...)
}
