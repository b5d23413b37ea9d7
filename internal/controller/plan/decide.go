// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"context"
	"math"
	"reflect"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/fleet"
	"moult.dev/moult/internal/rollout"
)

// start asks who goes next, and starts them. Nodes are claimed under the fleet's lock, on what is to be seen there: what has
// been decided before was decided on an older look. Their Jobs are made after that.
func (p *pass) start(ctx context.Context) error {
	decided := false
	decide := func(f rollout.Fleet) {
		decided = true
		p.decide(f)
	}
	if !p.settled {
		decide(p.world.fleet)
	}
	var errs []error
	if p.settled || p.fresh() {
		began := p.clock.Now()
		errs = append(errs, p.Controller.fleet.Admit(ctx, func(now fleet.Snapshot) error {
			p.cost += p.clock.Since(began)
			before := p.now
			p.now = p.clock.Now() // To be let in may have taken long.
			if !decided || fleet.Elapsed(before, p.now) || now.Version != p.nodesVersion || !reflect.DeepEqual(now.Budgets, p.world.fleet.Budgets) {
				decide(now.Fleet) // Otherwise the answer would be the same.
			}
			return p.claim(ctx)
		}))
	}
	if !decided {
		decide(p.world.fleet)
	}
	log.FromContext(ctx).V(1).Info("decided", "start", p.decision.Start, "waiting", len(p.decision.Waiting), "next", p.decision.Next)
	p.at(p.decision.Next)
	return first(append(errs, p.launch(ctx)))
}

// decide asks the engine.
func (p *pass) decide(f rollout.Fleet) {
	began := p.clock.Now()
	defer func() { p.cost += p.clock.Since(began) }()
	units := p.memo.units[:0]
	total := 0
	for i := range p.turns {
		t := &p.turns[i]
		if t.counted && (!t.unit.OptedOut || t.unit.State != v1alpha1.UnitOutdated) {
			total++
		}
		if t.counted || t.unit.HoldsSlot() {
			units = append(units, t.unit)
		}
	}
	p.memo.units = units
	s := p.strategy(total)
	if slices.ContainsFunc(s.Order, func(o v1alpha1.Order) bool { return o.By == v1alpha1.OrderFewestEvictionsFirst }) {
		f.Nodes = p.Controller.fleet.CountEvictions(f.Nodes)
	}
	p.decision = rollout.Decide(s, units, f, p.now)
	p.started = p.find()
	key := client.ObjectKeyFromObject(p.plan)
	p.plan.Status.Wave = p.waves.Keep(key, p.plan.UID, p.decision.Wave)
	p.queued.Set(key, slices.ContainsFunc(p.decision.Waiting, fleet.ForBudget))
}

// strategy is the Plan's, for so many nodes.
func (p *pass) strategy(total int) rollout.Strategy {
	s := rollout.New(p.plan.Spec.Strategy, int(min(p.plan.Spec.Concurrency, math.MaxInt32)), total)
	s.UID, s.Revision, s.Shared = p.plan.UID, p.plan.Status.LatestHash, shared(p.plan)
	s.Drains = p.plan.Spec.Drain != nil
	s.Window, s.OwnNode = p.window, p.world.options.NodeName
	s.Wave = p.waves.Latest(client.ObjectKeyFromObject(p.plan), p.plan.UID, p.plan.Status.Wave)
	s.Approved = p.plan.Annotations[v1alpha1.AnnotationApprove]
	return s
}

// fresh reports whether any of those that are to start has to be claimed.
func (p *pass) fresh() bool {
	return slices.ContainsFunc(p.started, func(t *turn) bool { return t.fresh(p.world) })
}

// fresh reports whether the turn has to claim its node before it can start.
func (t *turn) fresh(w *world) bool {
	return (!t.unit.InTurn || t.pending) && (!t.pending || t.interrupted(w))
}

// find are the turns that are to start.
func (p *pass) find() []*turn {
	if len(p.decision.Start) == 0 {
		return nil
	}
	names := make(map[string]bool, len(p.decision.Start))
	for _, name := range p.decision.Start {
		names[name] = true
	}
	found := make([]*turn, 0, len(names))
	for i := range p.turns {
		if t := &p.turns[i]; t.unit.State != v1alpha1.UnitUpdated && names[t.node.Name] {
			found = append(found, t)
		}
	}
	return found
}

// chosen are the turns that are to start and of which something holds.
func (p *pass) chosen(holds func(*turn, *world) bool) []*turn {
	var chosen []*turn
	for _, t := range p.started {
		if holds(t, p.world) {
			chosen = append(chosen, t)
		}
	}
	return chosen
}

// claim claims the nodes that the decision names.
func (p *pass) claim(ctx context.Context) error {
	chosen := p.chosen((*turn).fresh)
	if len(chosen) == 0 {
		return nil
	}
	if last, refused := p.refusals.get(p.plan.UID, p.plan.Generation, p.now); refused {
		p.at(last.until)
		p.drop(v1alpha1.ReasonJobRefused, last.why)
		return nil
	}
	return each(chosen, func(t *turn) error {
		if err := p.hold(ctx, t, t.newClaim(p.world)); err != nil {
			p.waits(t, v1alpha1.ReasonClaimLost, err)
			return err
		}
		p.world.seen.promise(t.key(p.world))
		log.FromContext(ctx).Info("node claimed", "node", t.node.Name, "version", p.plan.Status.LatestVersion)
		t.job, t.pending = nil, true
		return nil
	})
}

// drop lets nobody start, and says why.
func (p *pass) drop(reason v1alpha1.Reason, why error) {
	var waiting []rollout.Wait
	for _, name := range p.decision.Start {
		waiting = append(waiting, rollout.Wait{Node: name, Reason: reason, Message: why.Error()})
	}
	p.decision.Waiting = append(waiting, p.decision.Waiting...)
	p.decision.Start, p.started = nil, nil
}
