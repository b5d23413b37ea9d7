// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/events"
	machine "moult.dev/moult/internal/kind/replacement"
	"moult.dev/moult/internal/metrics"
	"moult.dev/moult/internal/rollout"
	"moult.dev/moult/internal/status"
	turnof "moult.dev/moult/internal/turn"
)

// remember puts turns and operations into the status, and the revision with what it was told by: one without the other would be taken for nothing new.
func (p *pass) remember() {
	s := &p.rollout.Status
	if s.Revision != p.view.Revision {
		s.Revision, s.TurnSeconds = p.view.Revision, 0
	}
	s.Turns = nil
	for _, t := range p.turns {
		if !t.Over {
			turn := t.MachineTurn
			turn.Message = turnof.Short(turn.Message)
			s.Turns = append(s.Turns, turn)
		}
	}
	slices.SortFunc(s.Turns, func(a, b v1alpha1.MachineTurn) int {
		return cmp.Or(a.Since.Compare(b.Since.Time), cmp.Compare(a.Turn, b.Turn))
	})
	known := map[string]v1alpha1.ScaleSetStatus{}
	for i := range s.ScaleSets {
		known[s.ScaleSets[i].Name] = s.ScaleSets[i]
	}
	var sets []v1alpha1.ScaleSetStatus
	for _, name := range slices.Sorted(maps.Keys(p.view.Sets)) {
		view := p.view.Sets[name]
		outdated := 0
		for i := range view.Machines {
			if m := &view.Machines[i]; p.view.Outdated(view, m, p.view.NodeOf(m)) {
				outdated++
			}
		}
		after := machine.Note(known[name], view, outdated)
		if view.Known {
			after.Complete = !p.failing(view) && (after.Complete || p.complete(view))
		}
		if after.Reason != "" && after.Since == nil {
			after.Since = turnof.Stamp(p.now)
		}
		sets = append(sets, after)
	}
	for i := range s.ScaleSets {
		if before := &s.ScaleSets[i]; p.view.Sets[before.Name] == nil && p.keeps(before) {
			sets = append(sets, kept(*before, p.blind != ""))
		}
	}
	slices.SortFunc(sets, func(a, b v1alpha1.ScaleSetStatus) int { return cmp.Compare(a.Name, b.Name) })
	s.ScaleSets = sets
}

// complete reports whether all nodes of a set are of its image, but for those that are left alone, and no turn goes on in it.
func (p *pass) complete(s *machine.Set) bool {
	updated := false
	for i := range p.nodes {
		switch n := &p.nodes[i]; {
		case n.Set != s || !n.Counted || n.Unit.OptedOut || n.Unit.Skipped || n.WithoutNode():
		case n.Unit.State == v1alpha1.UnitUpdated:
			updated = true
		case !n.Machine.Protected:
			return false
		}
	}
	return updated && !slices.ContainsFunc(p.turns, func(t *machine.Turn) bool { return !t.Over && t.ScaleSet == s.Name })
}

// keeps reports whether the memory of a set that is not seen now is still needed: what is under way there, and what image it had before. While the cloud
// can't be asked it can't be told which sets there are.
func (p *pass) keeps(s *v1alpha1.ScaleSetStatus) bool {
	return p.blind != "" || len(s.Operations) > 0 || s.PreviousImage != "" || s.RolledBack != "" ||
		slices.ContainsFunc(p.turns, func(t *machine.Turn) bool { return !t.Over && t.ScaleSet == s.Name })
}

// kept is what stays in the status of a set that is not seen now. Why it had trouble is known no more, unless the cloud can't be asked at all.
func kept(s v1alpha1.ScaleSetStatus, blind bool) v1alpha1.ScaleSetStatus {
	if !blind {
		s.Reason, s.Message, s.Since, s.Machines, s.Outdated = "", "", nil, 0, 0
	}
	return s
}

// memoryOf is what of a status must be written before anything is sent.
func memoryOf(s *v1alpha1.NodeRolloutStatus) ([]v1alpha1.MachineTurn, map[string]v1alpha1.ScaleSetStatus) {
	turns := slices.Clone(s.Turns)
	for i := range turns {
		turns[i].Message = ""
	}
	sets := map[string]v1alpha1.ScaleSetStatus{}
	for i := range s.ScaleSets {
		from := &s.ScaleSets[i]
		if len(from.Operations) > 0 || from.RolledBack != "" || from.PreviousImage != "" {
			sets[from.Name] = v1alpha1.ScaleSetStatus{Operations: from.Operations, RolledBack: from.RolledBack, PreviousImage: from.PreviousImage}
		}
	}
	return turns, sets
}

// remembered reports whether what is stored says of turns and operations what is decided now.
func (p *pass) remembered() bool {
	stored := turnof.StatusOf(p.stored)
	turns, sets := memoryOf(&stored)
	nowTurns, nowSets := memoryOf(&p.rollout.Status)
	return equality.Semantic.DeepEqual(turns, nowTurns) && equality.Semantic.DeepEqual(sets, nowSets)
}

// write writes down what is decided, before anything is done. A conflict says that nothing is: it is decided again on what is true now.
func (p *pass) write(ctx context.Context) error {
	p.remember()
	if len(p.rollout.Status.Turns) > 0 {
		if err := p.keep(ctx); err != nil {
			return err
		}
	}
	if p.remembered() {
		return nil
	}
	if err := p.writeStatus(ctx); err != nil {
		return err
	}
	p.announce()
	return nil
}

func (p *pass) writeStatus(ctx context.Context) error {
	after, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&p.rollout.Status)
	if err != nil {
		return fmt.Errorf("writing status, %w", err)
	}
	changed := p.stored.DeepCopy()
	changed.Object["status"] = after
	if err := p.client.Status().Patch(ctx, changed, client.MergeFromWithOptions(p.stored, client.MergeFromWithOptimisticLock{})); err != nil {
		p.gone = client.IgnoreNotFound(err) == nil
		return fmt.Errorf("writing status, %w", err)
	}
	absentBefore := absentees(p.holder, p.rollout.UID, turnof.StatusOf(p.stored).Turns)
	p.stored = changed
	p.memory.wrote(p.memo, changed)
	if !equality.Semantic.DeepEqual(absentBefore, absentees(p.holder, p.rollout.UID, p.rollout.Status.Turns)) {
		p.fleet.Changed() // Budgets count other Nodes now.
	}
	p.reports.Written(p.rollout.UID, changed.GetResourceVersion(), p.now)
	return nil
}

// turned notes that a turn has come into another phase; it is told once that is written down.
func (p *pass) turned(t *machine.Turn, then v1alpha1.MachinePhase) {
	i := slices.IndexFunc(p.before.Turns, func(b v1alpha1.MachineTurn) bool { return b.Turn == t.Turn })
	if i < 0 {
		return
	}
	before := &p.before.Turns[i]
	metrics.ObservePhase(p.rollout.Name, then, p.now.Sub(before.PhaseSince.Time))
	if before.Replacement == "" && t.Replacement != "" && t.Phase != v1alpha1.MachineDiscarding {
		p.happens(events.MachineAdded(p.rollout, &t.MachineTurn))
	}
	switch {
	case t.Failed != nil && before.Failed == nil:
		p.failed(t)
	case t.Phase == v1alpha1.MachineDiscarding && t.Replacement != "":
		p.happens(events.MachineDiscarded(p.rollout, &t.MachineTurn, cmp.Or(t.Message, "nothing waits for it")))
	}
	if before.Node != "" && t.Node == "" || before.Node == "" && before.Machine != "" && t.Machine == "" {
		p.happens(events.MachineDeleted(p.rollout, &t.MachineTurn, before))
	}
}

// announce tells of turns that are over, now that nobody remembers them, and of images that have been put back.
func (p *pass) announce() {
	for _, e := range p.restored {
		p.happens(e)
	}
	for _, t := range p.turns {
		if !t.Over || !t.Updated {
			continue
		}
		took := p.now.Sub(t.Since.Time)
		p.rollout.Status.TurnSeconds = turnof.Average(p.rollout.Status.TurnSeconds, took)
		metrics.ObserveTurn(p.name(), metrics.TurnUpdated, took)
		p.happens(events.MachineReplaced(p.rollout, &t.MachineTurn))
	}
}

// unkept reports whether there are turns that the NodeRollout could be deleted without: they are not written down before it can't.
func (p *pass) unkept() bool {
	return len(p.rollout.Status.Turns) > 0 && !p.rules.Ending && !slices.Contains(p.stored.GetFinalizers(), v1alpha1.FinalizerReplacement)
}

// report writes the status if it changed, and then the Events.
func (p *pass) report(ctx context.Context) error {
	if p.gone {
		return nil
	}
	if p.ready && p.view != nil {
		p.remember()
	}
	progress := p.count()
	status.SetNodeRolloutProgress(p.rollout, progress, p.now)
	p.rollout.Status.ObservedGeneration = p.rollout.Generation

	// What happened has happened, whether or not the status can be written now.
	p.events.Emit(p.happened...)
	p.happened = nil

	stored := turnof.StatusOf(p.stored)
	if equality.Semantic.DeepEqual(stored, p.rollout.Status) || p.unkept() {
		return nil
	}
	if due := p.reports.Due(p.rollout.UID, p.stored.GetResourceVersion(), p.now); p.now.Before(due) && p.remembered() {
		p.at(due)
		return nil
	}
	if err := p.writeStatus(ctx); err != nil {
		return client.IgnoreNotFound(err)
	}
	if started := p.reports.TakeStarted(p.rollout.UID); len(started) > 0 {
		p.events.Emit(events.MachinesStarted(p.rollout, started))
	}
	p.events.Emit(turnof.Transitions(&p.before, p.rollout)...)
	p.events.Emit(p.troubles()...)
	return nil
}

// troubles are the Events of scale sets that can't be changed any more, or can be again.
func (p *pass) troubles() (all []events.Event) {
	before := map[string]v1alpha1.Reason{}
	for i := range p.before.ScaleSets {
		before[p.before.ScaleSets[i].Name] = p.before.ScaleSets[i].Reason
	}
	for i := range p.rollout.Status.ScaleSets {
		switch s := &p.rollout.Status.ScaleSets[i]; {
		case s.Reason == before[s.Name]:
		case s.Reason != "":
			all = append(all, events.ScaleSetTrouble(p.rollout, s))
		default:
			all = append(all, events.ScaleSetWell(p.rollout, s.Name))
		}
	}
	return all
}

// count sums up the units in status, metrics and the progress that the conditions are made of.
func (p *pass) count() status.Progress {
	g := status.Progress{Ready: p.problem == nil}
	if p.problem != nil {
		g.Problem = p.problem.Error()
	}
	s := &p.rollout.Status
	s.Updating, s.Failed, s.Waiting = nil, nil, nil
	if !p.ready || p.view == nil {
		return g
	}
	g.Blind, g.BlindMessage = p.blind, p.blindMessage
	if len(p.view.Sets) == 0 && g.Blind == "" && p.alone == 0 && len(p.nodes) == 0 {
		g.Note = "no selected node is of a scale set"
	}
	tally := &tally{p: p, g: &g, states: map[v1alpha1.UnitState]int{}, failed: map[string]bool{}, waits: map[string]*rollout.Wait{}}
	for i := range p.decision.Waiting {
		tally.waits[p.decision.Waiting[i].Node] = &p.decision.Waiting[i]
	}
	for _, t := range p.turns {
		if !t.Over {
			tally.turn(t)
		}
	}
	for i := range p.nodes {
		tally.node(&p.nodes[i])
	}
	list, reasons := turnof.Waiting(&p.decision, tally.failed, &g)
	s.Waiting = list
	s.Updating, s.Failed = turnof.Oldest(s.Updating), turnof.Oldest(s.Failed)
	if g.Counts.Updating == 0 && !tally.retries {
		if h := p.decision.Halted; h != nil {
			g.Halted = h.Message
		}
		held := g.Counts.Waiting == 0 || g.Wait == v1alpha1.ReasonMaxConcurrent || g.Wait == v1alpha1.ReasonHalted
		g.Stuck = g.Halted != "" || g.Counts.Failed > 0 && held
	}
	p.notes(&g)
	s.Counts = &g.Counts
	metrics.SetUnits(p.name(), tally.states, reasons)
	p.countMachines()
	return g
}

// notes says what else is worth knowing.
func (p *pass) notes(g *status.Progress) {
	var notes []string
	if g.Note != "" {
		notes = append(notes, g.Note)
	}
	if p.rules.Ending {
		notes = append(notes, "the rollout is being deleted: what it has begun is ended")
	}
	switch {
	case p.blind != "":
	case p.alone == 1:
		notes = append(notes, "1 selected node is of no scale set, and is left alone")
	case p.alone > 1:
		notes = append(notes, fmt.Sprintf("%d selected nodes are of no scale set, and are left alone", p.alone))
	}
	for i := range p.rollout.Status.ScaleSets {
		if s := &p.rollout.Status.ScaleSets[i]; s.Reason != "" && (p.blind == "" || p.view.Sets[s.Name] != nil && p.view.Sets[s.Name].Known) {
			notes = append(notes, "scale set "+s.Name+": "+string(s.Reason)+": "+s.Message)
		}
	}
	notes = append(notes, p.unresumed()...)
	if p.replacement.Rollback && !p.limited() {
		notes = append(notes, "rollback is asked for, and neither strategy.maxFailures nor strategy.waves says when")
	}
	for _, name := range slices.Sorted(maps.Keys(p.view.Sets)) {
		if n := p.withoutNode(p.view.Sets[name]); n > 0 {
			notes = append(notes, fmt.Sprintf("scale set %s has %d outdated machines without a Node, which are not replaced", name, n))
		}
	}
	g.Note = strings.Join(notes, "; ")
}

// unresumed says which scale sets can't be told that they may move machines about again: a NodeRollout that is being deleted waits for that.
func (p *pass) unresumed() (notes []string) {
	keeps := ""
	if p.rules.Ending {
		keeps = ", which keeps the rollout"
	}
	for _, name := range slices.Sorted(maps.Keys(p.memo.sets)) {
		if why := p.memo.sets[name].unresumed; why != "" {
			notes = append(notes, "scale set "+name+" can't be told that it may move machines about again"+keeps+": "+why)
		}
	}
	return notes
}

// limited reports whether failures can halt the rollout.
func (p *pass) limited() bool {
	s := p.rollout.Spec.Strategy
	return s != nil && (s.MaxFailures != nil || len(s.Waves) > 0)
}

// withoutNode counts the outdated machines of a set that are there, and have no Node and no turn.
func (p *pass) withoutNode(s *machine.Set) (n int) {
	for i := range s.Machines {
		m := &s.Machines[i]
		there := m.State == machine.Running || m.State == machine.Failed || m.State == machine.Stopped
		if there && !m.UpToDate && p.view.NodeOf(m) == nil && !machine.Taken(p.turns, s.Name, m.ID) {
			n++
		}
	}
	return n
}

// countMachines counts machines by their states.
func (p *pass) countMachines() {
	for i := range p.rollout.Status.ScaleSets {
		s := &p.rollout.Status.ScaleSets[i]
		view := p.view.Sets[s.Name]
		if view == nil {
			continue
		}
		states := map[string]int{}
		for i := range view.Machines {
			states[string(view.Machines[i].State)]++
		}
		metrics.SetMachines(p.rollout.Name, s.Name, states, int(s.Outdated))
	}
}

// tally counts units.
type tally struct {
	p       *pass
	g       *status.Progress
	states  map[v1alpha1.UnitState]int
	failed  map[string]bool
	waits   map[string]*rollout.Wait
	newest  time.Time
	retries bool
}

// unit counts one.
func (y *tally) unit(u *rollout.Unit) {
	state := u.State
	holds := u.HoldsSlot()
	if holds && state == v1alpha1.UnitOutdated {
		state = v1alpha1.UnitUpdating
	}
	y.states[state]++
	y.retries = y.retries || !u.RetryAt.IsZero()
	c := &y.g.Counts
	c.Total++
	switch {
	case u.State == v1alpha1.UnitUpdated:
		c.Updated++
	case u.State == v1alpha1.UnitFailed:
		c.Failed++
		y.failed[u.Node] = true
		if y.g.Failure == "" || u.Since.After(y.newest) {
			y.g.Failure, y.newest = u.Message, u.Since
		}
		f := v1alpha1.UnitStatus{Node: u.Node, Reason: u.Reason, Message: u.Message, Since: turnof.Stamp(u.Since)}
		if wait := y.waits[u.Node]; wait != nil && wait.Reason == u.Reason {
			f.Message = wait.Message // It says also when it is tried again.
		}
		y.p.rollout.Status.Failed = append(y.p.rollout.Status.Failed, f)
	case holds:
		c.Updating++
	default:
		c.Waiting++
	}
}

// turn counts one that goes on.
func (y *tally) turn(t *machine.Turn) {
	y.unit(&t.Unit)
	if t.Unit.State == v1alpha1.UnitFailed {
		return
	}
	u := v1alpha1.UnitStatus{Node: t.Unit.Node, Phase: v1alpha1.Phase(t.Phase), Reason: t.Unit.Reason, Message: t.Message, Since: turnof.Stamp(t.PhaseSince.Time)}
	if wait := y.waits[t.Unit.Node]; wait != nil && t.Phase == v1alpha1.MachineClaiming {
		u.Reason, u.Message = wait.Reason, wait.Message
	}
	y.p.rollout.Status.Updating = append(y.p.rollout.Status.Updating, u)
}

// node counts a node that is in no turn.
func (y *tally) node(s *machine.NodeState) {
	if !s.Unit.HoldsSlot() && (!s.Counted || s.Unit.OptedOut && s.Unit.State == v1alpha1.UnitOutdated) {
		return
	}
	y.unit(&s.Unit)
}
