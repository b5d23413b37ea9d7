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
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cloud"
	"moult.dev/moult/internal/events"
	"moult.dev/moult/internal/kind/history"
	"moult.dev/moult/internal/kind/nodeturn"
	machine "moult.dev/moult/internal/kind/replacement"
	"moult.dev/moult/internal/metrics"
	"moult.dev/moult/internal/rollout"
	"moult.dev/moult/internal/status"
	turnof "moult.dev/moult/internal/turn"
)

// fillStatus puts turns, operations, scale sets and the revision into the status together: the next revision is derived from these.
func (p *pass) fillStatus() {
	s := &p.rollout.Status
	if s.Revision != p.world.Revision {
		s.Revision, s.TurnSeconds = p.world.Revision, 0
	}
	s.Turns = nil
	for _, t := range p.machineTurns {
		if !t.Over {
			turn := t.MachineTurn
			turn.Message = nodeturn.Short(turn.Message)
			s.Turns = append(s.Turns, turn)
		}
	}
	known := map[string]v1alpha1.ScaleSetStatus{}
	for name := range p.world.Sets {
		known[name] = v1alpha1.ScaleSetStatus{}
	}
	for i := range s.ScaleSets {
		known[s.ScaleSets[i].Name] = s.ScaleSets[i]
	}
	s.ScaleSets = nil
	for _, name := range slices.Sorted(maps.Keys(known)) {
		set, view := known[name], p.world.Sets[name]
		switch {
		case view != nil:
			set = p.setStatus(set, view)
		case p.unreadable != "": // The set may still be in the rollout.
		case set.PreviousImage == "" && set.RolledBack == "":
			continue
		default:
			set.Reason, set.Message, set.Since, set.Machines, set.Outdated = "", "", nil, 0, 0
		}
		s.ScaleSets = append(s.ScaleSets, set)
	}
}

// setStatus computes the new status of a scale set from the previous one.
func (p *pass) setStatus(before v1alpha1.ScaleSetStatus, view *machine.Set) v1alpha1.ScaleSetStatus {
	after := machine.NextSetStatus(before, view, p.outdated(view))
	if view.Known {
		after.Complete = !p.hasFailures(view) && (after.Complete || p.isComplete(view))
	}
	if after.Reason != "" && after.Since == nil {
		after.Since = nodeturn.Stamp(p.Now)
	}
	return after
}

// outdated counts the outdated machines of a set.
func (p *pass) outdated(s *machine.Set) int {
	return rollout.Count(s.Machines, func(m *cloud.Machine) bool { return p.world.Outdated(s, m, p.world.NodeOf(m)) })
}

// isComplete reports whether all nodes of a set have its image, and no turn is under way in it. Skipped, opted-out and protected nodes do not count.
func (p *pass) isComplete(s *machine.Set) bool {
	updated := false
	for _, n := range p.nodes {
		switch {
		case n.Set != s || !n.Counted || n.Unit.OptedOut || n.Unit.Skipped:
		case n.Unit.State == v1alpha1.UnitUpdated:
			updated = true
		case !n.Machine.Protected && n.Machine.Aside == "":
			return false
		}
	}
	return updated && !slices.ContainsFunc(p.machineTurns, func(t *machine.Turn) bool { return !t.Over && t.ScaleSet == s.Name })
}

// intent is the part of a status that must be written before anything is sent.
func intent(s *v1alpha1.NodeRolloutStatus) (i []any) {
	for _, t := range s.Turns {
		t.Message = ""
		i = append(i, t)
	}
	for _, set := range s.ScaleSets {
		i = append(i, set.Name, set.RolledBack, set.PreviousImage, set.Operations)
	}
	return i
}

// isWritten reports whether the stored turns and operations are those that are decided now.
func (p *pass) isWritten() bool {
	return equality.Semantic.DeepEqual(intent(&p.written), intent(&p.rollout.Status))
}

// write records decisions in the status before any action. A NodeRollout with turns gets the finalizer first: they must end before it is deleted.
// After a conflict the next pass decides again.
func (p *pass) write(ctx context.Context) error {
	p.fillStatus()
	if len(p.rollout.Status.Turns) > 0 && !p.rules.Ending {
		if err := p.editFinalizer(ctx, controllerutil.AddFinalizer); err != nil {
			p.unwritten = true
			return err
		}
	}
	if p.isWritten() {
		return nil
	}
	for _, t := range p.machineTurns {
		if t.Over && t.Updated {
			took := p.Now.Sub(t.Since.Time)
			p.rollout.Status.TurnSeconds = turnof.Average(p.rollout.Status.TurnSeconds, took)
			history.AddTurns(p.rollout.Status.History, took)
		}
	}
	return p.writeStatus(ctx)
}

func (p *pass) writeStatus(ctx context.Context) error {
	before := p.written.Turns
	changed, err := p.WriteStatus(ctx, p.stored, &p.rollout.Status)
	if err != nil {
		p.unwritten = true
		return err
	}
	p.stored, p.written = changed, turnof.StatusOf(changed)
	for _, t := range p.machineTurns {
		if i := slices.IndexFunc(before, func(b v1alpha1.MachineTurn) bool { return b.Turn == t.Turn }); i >= 0 {
			p.recordProgress(t, &before[i])
		}
	}
	if !equality.Semantic.DeepEqual(machine.AbsentNodes(p.Holder, p.UID, before), machine.AbsentNodes(p.Holder, p.UID, p.rollout.Status.Turns)) {
		p.Fleet.Changed() // Budgets count other Nodes now.
	}
	return nil
}

// recordProgress adds Events and metrics of what a turn has done since the previous status.
func (p *pass) recordProgress(t *machine.Turn, before *v1alpha1.MachineTurn) {
	if before.Failed == nil && t.Failed != nil {
		metrics.ObserveFailure(p.Name(), t.Failed.Reason, t.Failed.Time.Sub(t.Since.Time))
		if t.Node != "" {
			p.Happened(events.NodeUpdateFailed(t.Node, p.rollout, p.Holder, t.Failed))
		}
		p.Happened(events.NodeFailed(p.rollout, t.Failed.Message))
	}
	if t.Over && t.Updated {
		metrics.ObserveTurn(p.Name(), p.Now.Sub(t.Since.Time))
		if t.ReplacementNode != "" {
			p.Happened(events.NodeReplaces(t.ReplacementNode, p.rollout, p.Holder, before.Node, p.Now.Sub(t.Since.Time)))
		}
		p.Mention(events.MachinesReplaced(p.rollout, t.ScaleSet), cmp.Or(t.ReplacementNode, t.Replacement))
	}
	if before.Phase == t.Phase {
		return
	}
	metrics.ObservePhase(p.rollout.Name, before.Phase, p.Now.Sub(before.PhaseSince.Time))
	if before.Replacement == "" && t.Replacement != "" && t.Phase != v1alpha1.MachineDiscarding {
		p.Mention(events.MachinesAdded(p.rollout, t.ScaleSet), t.Replacement)
	}
	if t.Failed == nil && t.Phase == v1alpha1.MachineDiscarding && t.Replacement != "" {
		p.Happened(events.MachineDiscarded(p.rollout, &t.MachineTurn, cmp.Or(t.Message, "no turn needs it")))
	}
	if before.Node != "" && t.Node == "" || before.Node == "" && before.Machine != "" && t.Machine == "" {
		p.Mention(events.MachinesDeleted(p.rollout, t.ScaleSet), cmp.Or(before.Node, before.Machine))
	}
}

// report emits pending Events, writes a changed status, and then emits its Events. If the status could not be written before, the next pass reports.
func (p *pass) report(ctx context.Context) error {
	if p.unwritten {
		return nil
	}
	if p.ready {
		p.fillStatus()
	}
	g := p.countProgress()
	metrics.SetStalled(p.Name(), g.Stalled())
	status.SetNodeRolloutProgress(p.rollout, g, p.Now)
	p.rollout.Status.ObservedGeneration = p.rollout.Generation

	changed := !equality.Semantic.DeepEqual(p.written, p.rollout.Status)
	write, again := p.Reports.Next(p.UID, p.stored.GetResourceVersion(), changed, p.Now)
	p.at(again)
	var err error
	writes := write || p.WaveUnstored && turnof.WaveChanged(p.written.Wave, p.rollout.Status.Wave) || !p.isWritten()
	if writes {
		err = p.writeStatus(ctx)
	}
	if p.WaveUnstored && err == nil {
		p.soon()
	}
	p.Events.Emit(append(p.Pending, p.Mentioned()...)...) // These things happened, even if the status can't be written.
	if p.Pending = nil; err != nil || !writes {
		return client.IgnoreNotFound(err)
	}
	p.Events.Emit(turnof.Transitions(&p.before, p.rollout)...)
	p.Events.Emit(p.troubles()...)
	return nil
}

// troubles are the Events of scale sets whose reason has changed.
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

// countProgress sums up the units in status, metrics and the progress that the conditions are made of.
func (p *pass) countProgress() status.Progress {
	s := &p.rollout.Status
	if !p.ready {
		s.Updating, s.Failed, s.Waiting = nil, nil, nil
		return status.Progress{Problem: p.problem.Error()}
	}
	p.Turns = p.units()
	g := p.Summarize(func(u *unit) (phase v1alpha1.Phase, since time.Time, message string) {
		if u.turn == nil {
			return "", u.Unit.Since, ""
		}
		return v1alpha1.Phase(u.turn.Phase), u.turn.PhaseSince.Time, u.turn.Message
	})
	s.Updating, s.Failed, s.Waiting = g.Updating, g.Failed, g.Waiting
	if g.Ready = p.problem == nil; !g.Ready {
		g.Problem = p.problem.Error()
	}
	g.Unknown, g.UnknownMessage = p.unreadable, p.unreadableMessage
	g.Note = p.notes()
	isKnown := func(s *machine.Set) bool { return s.Known }
	if p.unreadable != "" && s.Counts != nil && !slices.ContainsFunc(slices.Collect(maps.Values(p.world.Sets)), isKnown) {
		g.Counts = *s.Counts // Nothing was read since the process has started.
	} else {
		s.Counts = &g.Counts
		s.History = p.History(s.History, s.Revision, s.Wave, s.Approval, &g)
	}
	p.Measure(&g, true)
	p.countMachines()
	return g.Progress
}

// notes says what else an operator should know.
func (p *pass) notes() string {
	var notes []string
	if len(p.world.Sets) == 0 && p.unreadable == "" && p.unmatched == 0 && len(p.nodes) == 0 {
		notes = append(notes, "no selected node belongs to a scale set")
	}
	if p.rules.Ending {
		notes = append(notes, "the rollout is being deleted: its turns end first")
	}
	if p.unmatched > 0 && p.unreadable == "" {
		notes = append(notes, fmt.Sprintf("selected nodes whose machines are in none of the rollout's scale sets, and are ignored: %d", p.unmatched))
	}
	for i := range p.rollout.Status.ScaleSets {
		if s := &p.rollout.Status.ScaleSets[i]; s.Reason != "" && (p.unreadable == "" || p.world.Sets[s.Name] != nil && p.world.Sets[s.Name].Known) {
			notes = append(notes, "scale set "+s.Name+": "+string(s.Reason)+": "+s.Message)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.memo.sets)) {
		if why := p.memo.sets[name].suspending.message; why != "" {
			notes = append(notes, "the balancing of zones in scale set "+name+" can't be suspended or resumed: "+why)
		}
	}
	if strategy := p.rollout.Spec.Strategy; p.replacement.Rollback && (strategy == nil || strategy.MaxFailures == nil && len(strategy.Waves) == 0) {
		notes = append(notes, "rollback needs strategy.maxFailures or strategy.waves, which say when")
	}
	for _, name := range slices.Sorted(maps.Keys(p.world.Sets)) {
		if ids := p.withoutNode(p.world.Sets[name]); len(ids) > 0 {
			notes = append(notes, fmt.Sprintf("scale set %s has %d outdated machines without a Node, which are not replaced, such as %s", name, len(ids), ids[0]))
		}
	}
	return strings.Join(notes, "; ")
}

// withoutNode returns the machines of a set that are made and outdated by the cloud's own answer, and have no Node and no turn.
func (p *pass) withoutNode(s *machine.Set) (ids []string) {
	for i := range s.Machines {
		m := &s.Machines[i]
		isMade := m.State != cloud.Creating && m.State != cloud.Deleting
		if isMade && !m.UpToDate && p.world.NodeOf(m) == nil && !machine.IsTaken(p.machineTurns, s.Name, m.ID) {
			ids = append(ids, m.ID)
		}
	}
	return ids
}

// countMachines counts machines by their states, in metrics.
func (p *pass) countMachines() {
	for _, s := range p.rollout.Status.ScaleSets {
		if view := p.world.Sets[s.Name]; view != nil {
			states := map[string]int{}
			for i := range view.Machines {
				states[string(view.Machines[i].State)]++
			}
			metrics.SetMachines(p.rollout.Name, s.Name, states, int(s.Outdated))
		}
	}
}
