// SPDX-License-Identifier: Apache-2.0

package hostupdate

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/events"
	"moult.dev/moult/internal/hostupdate"
	"moult.dev/moult/internal/metrics"
	"moult.dev/moult/internal/rollout"
	"moult.dev/moult/internal/status"
	"moult.dev/moult/internal/turn"
)

// report writes the status if it changed, and then the Events.
func (p *pass) report(ctx context.Context, stored *unstructured.Unstructured) error {
	began := p.clock.Now()
	progress := p.count()
	p.cost += p.clock.Since(began)
	status.SetNodeRolloutProgress(p.rollout, progress, p.now)
	p.rollout.Status.ObservedGeneration = p.rollout.Generation

	// What happened on nodes has happened, whether or not the status can be written now.
	p.events.Emit(p.happened...)
	p.happened = nil

	before := turn.StatusOf(stored)
	if equality.Semantic.DeepEqual(before, p.rollout.Status) {
		return nil
	}
	if due := p.reports.Due(p.rollout.UID, stored.GetResourceVersion(), p.now); p.now.Before(due) {
		p.at(due)
		return nil
	}
	after, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&p.rollout.Status)
	if err != nil {
		return fmt.Errorf("writing status, %w", err)
	}
	changed := stored.DeepCopy()
	changed.Object["status"] = after
	if err := p.client.Status().Patch(ctx, changed, client.MergeFromWithOptions(stored, client.MergeFromWithOptimisticLock{})); err != nil {
		return client.IgnoreNotFound(err)
	}
	p.reports.Written(p.rollout.UID, changed.GetResourceVersion(), p.now)
	if started := p.reports.TakeStarted(p.rollout.UID); len(started) > 0 {
		p.events.Emit(events.HostsStarted(p.rollout, started))
	}
	p.events.Emit(turn.Transitions(&before, p.rollout)...)
	return nil
}

// count sums up the turns in status, metrics and the progress that the conditions are made of.
func (p *pass) count() status.Progress {
	g := status.Progress{Ready: p.problem == nil}
	if p.problem != nil {
		g.Problem = p.problem.Error()
	}
	s := &p.rollout.Status
	s.Updating, s.Failed, s.Waiting = nil, nil, nil
	states := map[v1alpha1.UnitState]int{}
	var holders []*unit
	var newest time.Time
	for i := range p.turns {
		t := &p.turns[i]
		holds := t.Unit.HoldsSlot()
		if !holds && (!t.Counted || t.Unit.OptedOut && t.Unit.State == v1alpha1.UnitOutdated) {
			continue
		}
		state := t.Unit.State
		if holds && state == v1alpha1.UnitOutdated {
			state = v1alpha1.UnitUpdating // Its turn is to start over.
		}
		states[state]++
		g.Counts.Total++
		switch {
		case t.Unit.State == v1alpha1.UnitUpdated:
			g.Counts.Updated++
		case t.Unit.State == v1alpha1.UnitFailed:
			g.Counts.Failed++
			if g.Failure == "" || t.Unit.Since.After(newest) {
				g.Failure, newest = t.Unit.Message, t.Unit.Since
			}
		case holds:
			g.Counts.Updating++
		default:
			g.Counts.Waiting++
		}
		if holds || t.Unit.State == v1alpha1.UnitFailed {
			holders = append(holders, t)
		}
	}
	reasons := p.listWaiting(&g)
	p.listHolders(holders)
	p.judgeHalt(&g)
	if !p.ready {
		return g
	}
	if p.unlabelled > 0 {
		g.Note = unlabelled(p.unlabelled)
	}
	p.memo.known, p.memo.before, p.memo.complete = true, p.revision, p.complete()
	if s.Revision != p.revision {
		s.Revision, s.TurnSeconds = p.revision, 0
	}
	s.Counts, s.Releases, s.Versions = &g.Counts, p.releases, p.versions
	metrics.SetUnits(p.name(), states, reasons)
	metrics.SetHostVersions(p.rollout.Name, p.versions)
	return g
}

// complete reports whether no host is known to need what the rollout brings them to, and none is in a turn. Hosts that are silent, or can't say,
// do not keep it from being complete: what they need once they say so is another reboot.
func (p *pass) complete() bool {
	for i := range p.turns {
		t := &p.turns[i]
		if r := t.answer(); t.Claim != nil || t.Counted && !t.Unit.OptedOut && r.Knows() && r.Update == v1alpha1.HostUpdateTrue {
			return false
		}
	}
	return true
}

func unlabelled(n int) string {
	if n == 1 {
		return "1 selected node has no label that names its host's interface, and is left alone"
	}
	return fmt.Sprintf("%d selected nodes have no label that names their host's interface, and are left alone", n)
}

// judgeHalt says whether nothing goes on until somebody acts.
func (p *pass) judgeHalt(g *status.Progress) {
	if g.Counts.Updating > 0 {
		return
	}
	for i := range p.turns {
		if !p.turns[i].unit.RetryAt.IsZero() {
			return
		}
	}
	if h := p.decision.Halted; h != nil {
		g.Halted = h.Message
	}
	held := g.Counts.Waiting == 0 || g.Wait == v1alpha1.ReasonMaxConcurrent || g.Wait == v1alpha1.ReasonHalted
	g.Stuck = g.Halted != "" || g.Counts.Failed > 0 && held
}

// listHolders lists the first of the nodes in a turn, and of those that failed, with what they do or did.
func (p *pass) listHolders(holders []*unit) {
	s := &p.rollout.Status
	waits := make(map[string]*rollout.Wait, len(holders))
	for _, t := range holders {
		waits[t.Node.Name] = nil
	}
	for i := range p.decision.Waiting {
		if wait := &p.decision.Waiting[i]; len(waits) > 0 {
			if _, ok := waits[wait.Node]; ok {
				waits[wait.Node] = wait
			}
		}
	}
	for _, t := range holders {
		wait := waits[t.Node.Name]
		if t.Unit.State == v1alpha1.UnitFailed {
			failed := v1alpha1.UnitStatus{Node: t.Node.Name, Reason: t.Unit.Reason, Message: t.Unit.Message, Since: turn.Stamp(t.Unit.Since)}
			if wait != nil && wait.Reason == t.Unit.Reason {
				failed.Message = wait.Message // It says also when it is tried again.
			}
			s.Failed = append(s.Failed, failed)
			continue
		}
		phase, since := t.phase()
		turn := v1alpha1.UnitStatus{Node: t.Node.Name, Phase: phase, Reason: t.Unit.Reason, Message: t.Message, Since: turn.Stamp(since)}
		if wait != nil {
			turn.Reason, turn.Message = wait.Reason, wait.Message
			if !t.Unreadable {
				turn.Message = "it is to start over: " + turn.Message
			}
		}
		s.Updating = append(s.Updating, turn)
	}
	s.Updating, s.Failed = turn.Oldest(s.Updating), turn.Oldest(s.Failed)
}

// phase is where the turn stands, and since when.
func (t *unit) phase() (v1alpha1.Phase, time.Time) {
	if t.Claim == nil {
		return v1alpha1.PhaseClaimed, t.Unit.Since // It is about to be taken over, or can't be read.
	}
	phase, since := hostupdate.PhaseOf(t.Claim)
	return phase, since.Time
}

// listWaiting lists the nodes that come next, and counts those that wait, failed ones too, by their reason.
func (p *pass) listWaiting(g *status.Progress) map[v1alpha1.Reason]int {
	failed := map[string]bool{}
	for i := range p.turns {
		if t := &p.turns[i]; t.Unit.State == v1alpha1.UnitFailed {
			failed[t.Node.Name] = true
		}
	}
	list, reasons := turn.Waiting(&p.decision, failed, g)
	p.rollout.Status.Waiting = list
	return reasons
}
