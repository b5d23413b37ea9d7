// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"context"
	"math"
	"reflect"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/fleet"
	"moult.dev/moult/internal/rollout"
)

// start asks who goes next, and starts them. Nodes are claimed under the fleet's lock, on what is to be seen there: what has
// been decided before was decided on an older look. Their Jobs are made after that.
func (p *pass) start(ctx context.Context) error {
	p.decide(p.world.fleet)
	var errs []error
	if p.fresh() {
		began := p.clock.Now()
		errs = append(errs, p.Controller.fleet.Admit(ctx, func(now fleet.Snapshot) error {
			p.cost += p.clock.Since(began)
			if now.Version != p.nodesVersion || !reflect.DeepEqual(now.Budgets, p.world.fleet.Budgets) {
				p.decide(now.Fleet) // Otherwise the answer would be the same.
			}
			return p.claim(ctx)
		}))
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
	p.plan.Status.Wave = p.waves.keep(p.plan, p.decision.Wave)
	p.queued.set(client.ObjectKeyFromObject(p.plan), slices.ContainsFunc(p.decision.Waiting, func(w rollout.Wait) bool { return ofBudget(w.Reason) }))
}

// strategy is the Plan's, for so many nodes.
func (p *pass) strategy(total int) rollout.Strategy {
	s := rollout.New(p.plan.Spec.Strategy, int(min(p.plan.Spec.Concurrency, math.MaxInt32)), total)
	s.UID, s.Revision, s.Shared = p.plan.UID, p.plan.Status.LatestHash, shared(p.plan)
	s.Drains = p.plan.Spec.Drain != nil && p.world.options.Job.KubectlImage == ""
	s.Window, s.OwnNode = p.window, p.world.options.NodeName
	s.Wave, s.Approved = p.waves.latest(p.plan), p.plan.Annotations[v1alpha1.AnnotationApprove]
	return s
}

// fresh reports whether any of those that are to start has to be claimed.
func (p *pass) fresh() bool {
	return len(p.chosen((*turn).fresh)) > 0
}

// fresh reports whether the turn has to claim its node before it can start.
func (t *turn) fresh(w *world) bool {
	return (!t.unit.InTurn || t.pending) && (!t.pending || t.interrupted(w))
}

// chosen are the turns that are to start and of which something holds.
func (p *pass) chosen(holds func(*turn, *world) bool) []*turn {
	if len(p.decision.Start) == 0 {
		return nil
	}
	names := make(map[string]bool, len(p.decision.Start))
	for _, name := range p.decision.Start {
		names[name] = true
	}
	var chosen []*turn
	for i := range p.turns {
		if t := &p.turns[i]; t.unit.State != v1alpha1.UnitUpdated && names[t.node.Name] && holds(t, p.world) {
			chosen = append(chosen, t)
		}
	}
	return chosen
}

// claim claims the nodes that the decision names.
func (p *pass) claim(ctx context.Context) error {
	if last, refused := p.refusals.get(p.plan.UID, p.plan.Generation, p.now); refused {
		p.at(last.until)
		p.drop(v1alpha1.ReasonJobRefused, last.why)
		return nil
	}
	return each(p.chosen((*turn).fresh), func(t *turn) error {
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
	p.decision.Start = nil
}

// ofBudget reports whether it is a budget that lets a unit wait: then it is not only the Plan's own nodes that can end that.
func ofBudget(r v1alpha1.Reason) bool { return slices.Contains(reasonsOfBudgets, r) }

var reasonsOfBudgets = []v1alpha1.Reason{
	v1alpha1.ReasonBudgetInvalid, v1alpha1.ReasonBudgetPaused, v1alpha1.ReasonOutsideBudgetWindow, v1alpha1.ReasonBudgetExhausted,
	v1alpha1.ReasonMaxDomains, v1alpha1.ReasonWorkloadsUnavailable, v1alpha1.ReasonPodsBlock, v1alpha1.ReasonAlertsActive,
	v1alpha1.ReasonAlertsUnreachable, v1alpha1.ReasonWaveUnhealthy,
}

// queued are the Plans that wait for a budget.
type queued struct {
	mu    sync.Mutex
	plans map[types.NamespacedName]bool
}

func newQueued() *queued { return &queued{plans: map[types.NamespacedName]bool{}} }

func (q *queued) set(plan types.NamespacedName, waits bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if waits {
		q.plans[plan] = true
	} else {
		delete(q.plans, plan)
	}
}

func (q *queued) done(plan types.NamespacedName) { q.set(plan, false) }

func (q *queued) all() []types.NamespacedName {
	q.mu.Lock()
	defer q.mu.Unlock()
	all := make([]types.NamespacedName, 0, len(q.plans))
	for plan := range q.plans {
		all = append(all, plan)
	}
	return all
}

// waves remembers how far each Plan has come through its waves, while what it has written of that is not to be read yet. To
// forget it costs nothing: a status that is some moments old leads to the same wave a moment later.
type waves struct {
	mu   sync.Mutex
	last map[types.NamespacedName]wave
}

type wave struct {
	plan   types.UID
	status *v1alpha1.WaveStatus
}

func newWaves() *waves { return &waves{last: map[types.NamespacedName]wave{}} }

// keep notes how far a Plan has come, and gives it back for the status.
func (w *waves) keep(p *upgradev1.Plan, s *v1alpha1.WaveStatus) *v1alpha1.WaveStatus {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last[client.ObjectKeyFromObject(p)] = wave{p.UID, s}
	return s.DeepCopy()
}

// latest is how far a Plan has come, by what is known newest.
func (w *waves) latest(p *upgradev1.Plan) *v1alpha1.WaveStatus {
	w.mu.Lock()
	defer w.mu.Unlock()
	if last, ok := w.last[client.ObjectKeyFromObject(p)]; ok && last.plan == p.UID && last.status != nil {
		return last.status
	}
	return p.Status.Wave
}

// forget drops a Plan that is gone.
func (w *waves) forget(plan types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.last, plan)
}
