// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/events"
	"moult.dev/moult/internal/metrics"
	"moult.dev/moult/internal/rollout"
	"moult.dev/moult/internal/status"
)

// later is an instant, or zero if it has passed.
func later(at, now time.Time) time.Time {
	if at.After(now) {
		return at
	}
	return time.Time{}
}

// report writes the status if it changed, and then the Events.
func (p *pass) report(ctx context.Context, stored *unstructured.Unstructured, r resolution) error {
	began := p.clock.Now()
	progress := p.count(r)
	p.cost += p.clock.Since(began)
	status.SetPlanProgress(p.plan, progress, p.now)
	p.plan.Status.ObservedGeneration = p.plan.Generation

	// What happened on nodes has happened, whether or not the status can be written now.
	p.events.Emit(p.happened...)
	p.happened = nil

	before := upgradev1.Plan{}
	if content, ok := stored.Object["status"]; ok {
		// A status that can't be read is written anew.
		_ = runtime.DefaultUnstructuredConverter.FromUnstructured(map[string]any{"status": content}, &before)
	}
	if equality.Semantic.DeepEqual(before.Status, p.plan.Status) {
		return nil
	}
	if due := p.reports.Due(p.plan.UID, stored.GetResourceVersion(), p.now); p.now.Before(due) {
		p.at(due)
		return nil
	}
	after, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&p.plan.Status)
	if err != nil {
		return fmt.Errorf("writing status, %w", err)
	}
	changed := stored.DeepCopy()
	changed.Object["status"] = after
	if err := p.client.Status().Patch(ctx, changed, client.MergeFromWithOptions(stored, client.MergeFromWithOptimisticLock{})); err != nil {
		return client.IgnoreNotFound(err)
	}
	p.reports.Written(p.plan.UID, changed.GetResourceVersion(), p.now)
	if started := p.reports.TakeStarted(p.plan.UID); len(started) > 0 {
		p.events.Emit(events.PlanSyncJob(p.plan, started))
	}
	p.events.Emit(transitions(&before.Status, p.plan, r)...)
	return nil
}

// count sums up the turns in status, metrics and the progress that the conditions are made of.
func (p *pass) count(r resolution) status.Progress {
	g := status.Progress{Ready: r.ready}
	if r.problem != nil {
		g.Problem = r.problem.Error()
	}
	s := &p.plan.Status
	s.Applying, s.Updating, s.Failed, s.Waiting = nil, nil, nil, nil
	states := map[v1alpha1.UnitState]int{}
	var holders []*turn
	var newest time.Time
	for i := range p.turns {
		t := &p.turns[i]
		holds := t.unit.HoldsSlot()
		if !holds && (!t.counted || t.unit.OptedOut && t.unit.State == v1alpha1.UnitOutdated) {
			continue
		}
		state := t.unit.State
		if holds && state == v1alpha1.UnitOutdated {
			state = v1alpha1.UnitUpdating // Its turn is to start over.
		}
		states[state]++
		g.Counts.Total++
		switch {
		case t.unit.State == v1alpha1.UnitUpdated:
			g.Counts.Updated++
		case t.unit.State == v1alpha1.UnitFailed:
			g.Counts.Failed++
			if g.Failure == "" || t.unit.Since.After(newest) {
				g.Failure, newest = t.unit.Message, t.unit.Since
			}
		case holds:
			g.Counts.Updating++
		default:
			g.Counts.Waiting++
		}
		if holds || t.unit.State == v1alpha1.UnitFailed {
			holders = append(holders, t)
		}
	}
	reasons := p.listWaiting(&g)
	p.listHolders(holders)
	p.judgeHalt(&g)
	if r.ready {
		s.Counts = &g.Counts
		metrics.SetUnits(p.name(), states, reasons)
	}
	return g
}

// judgeHalt says whether nothing goes on until somebody acts.
func (p *pass) judgeHalt(g *status.Progress) {
	if g.Counts.Updating > 0 || slices.ContainsFunc(p.turns, func(t turn) bool { return !t.unit.RetryAt.IsZero() }) {
		return
	}
	if h := p.decision.Halted; h != nil {
		g.Halted = h.Message
	}
	held := g.Counts.Waiting == 0 || g.Wait == v1alpha1.ReasonMaxConcurrent || g.Wait == v1alpha1.ReasonHalted
	g.Stuck = g.Halted != "" || g.Counts.Failed > 0 && held
}

// listHolders lists the nodes that hold a slot, all of them by hostname, and the first of them and of those that failed with
// what they do or did.
func (p *pass) listHolders(holders []*turn) {
	s := &p.plan.Status
	waits := make(map[string]*rollout.Wait, len(holders))
	for _, t := range holders {
		waits[t.node.Name] = nil
	}
	for i := range p.decision.Waiting {
		if wait := &p.decision.Waiting[i]; len(waits) > 0 {
			if _, ok := waits[wait.Node]; ok {
				waits[wait.Node] = wait
			}
		}
	}
	slices.SortFunc(holders, func(a, b *turn) int { return cmp.Compare(a.node.Name, b.node.Name) })
	for _, t := range holders {
		if t.unit.HoldsSlot() {
			s.Applying = append(s.Applying, t.node.Labels[corev1.LabelHostname])
		}
		if t.unit.State == v1alpha1.UnitFailed {
			failed := v1alpha1.UnitStatus{Node: t.node.Name, Reason: t.unit.Reason, Message: t.unit.Message, Since: stamp(t.unit.Since)}
			if wait := waits[t.node.Name]; wait != nil && wait.Reason == t.unit.Reason {
				failed.Message = wait.Message // It says also when it is tried again.
			}
			s.Failed = append(s.Failed, failed)
			continue
		}
		phase, since, message := t.phase(p.now)
		if t.job != nil && t.pod == nil {
			p.at(later(t.job.CreationTimestamp.Add(podPatience), p.now))
		}
		turn := v1alpha1.UnitStatus{Node: t.node.Name, Phase: phase, Message: message, Since: stamp(since)}
		if wait := waits[t.node.Name]; wait != nil {
			turn.Reason, turn.Message = wait.Reason, "it is to start over: "+wait.Message
		}
		s.Updating = append(s.Updating, turn)
	}
	s.Updating, s.Failed = oldest(s.Updating), oldest(s.Failed)
}

// listWaiting lists the nodes that come next, and counts those that wait, failed ones too, by their reason.
func (p *pass) listWaiting(g *status.Progress) map[v1alpha1.Reason]int {
	s := &p.plan.Status
	failed := map[string]bool{}
	for i := range p.turns {
		if t := &p.turns[i]; t.unit.State == v1alpha1.UnitFailed {
			failed[t.node.Name] = true
		}
	}
	reasons := map[v1alpha1.Reason]int{}
	for i := range p.decision.Waiting {
		wait := &p.decision.Waiting[i]
		reasons[wait.Reason]++
		if wait.Holds || failed[wait.Node] || wait.Reason == v1alpha1.ReasonOptedOut {
			continue
		}
		if g.Wait == "" {
			g.Wait, g.WaitMessage = wait.Reason, wait.Message
		}
		if len(s.Waiting) < v1alpha1.MaxListedUnits {
			s.Waiting = append(s.Waiting, v1alpha1.UnitStatus{Node: wait.Node, Reason: wait.Reason, Message: wait.Message})
		}
	}
	return reasons
}

// oldest keeps the first of a list, by age.
func oldest(list []v1alpha1.UnitStatus) []v1alpha1.UnitStatus {
	slices.SortFunc(list, func(a, b v1alpha1.UnitStatus) int {
		return cmp.Or(a.Since.Compare(b.Since.Time), cmp.Compare(a.Node, b.Node))
	})
	return list[:min(len(list), v1alpha1.MaxListedUnits)]
}

// stamp is a time as the API stores it, in seconds.
func stamp(t time.Time) *metav1.Time {
	return &metav1.Time{Time: t.UTC().Truncate(time.Second)}
}
