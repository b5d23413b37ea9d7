// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/events"
	"moult.dev/moult/internal/kind/plan"
	"moult.dev/moult/internal/metrics"
	"moult.dev/moult/internal/status"
	"moult.dev/moult/internal/turn"
)

// report writes the status if it differs from before, and then emits the Events.
func (p *pass) report(ctx context.Context, stored *unstructured.Unstructured, before *upgradev1.PlanStatus) error {
	g := p.count()
	metrics.SetStalled(p.Name(), g.Stalled())
	status.SetPlanProgress(p.w.Plan, g, p.w.Now)
	p.w.Plan.Status.ObservedGeneration = p.w.Plan.Generation
	if p.asking {
		p.w.Plan.Status = *before // The first status of a Plan has the version.
	}
	return p.Report(ctx, stored, before, &p.w.Plan.Status, func() { p.Events.Emit(transitions(before, p.w.Plan, p.problem)...) })
}

// count writes the counts of turns to the status and the metrics. It returns the input of the conditions.
func (p *pass) count() status.Progress {
	g := p.Summarize(func(t *plan.Unit) (v1alpha1.Phase, time.Time, string) { return t.Phase(p.w.Now) })
	g.Ready = p.w.Ready
	if p.problem != nil {
		g.Problem = p.problem.Error()
	}
	s := &p.w.Plan.Status
	s.Applying, s.Updating, s.Failed, s.Waiting = p.applying(), g.Updating, g.Failed, g.Waiting
	s.TurnSeconds = p.TurnSeconds(s.TurnSeconds)
	if s.RolledBack != nil {
		g.Note = "rolled back from version " + s.RolledBack.Version
	}
	if p.w.Ready {
		if g.Counts.Total > 0 && g.Counts.Updated == g.Counts.Total {
			s.LastComplete = plan.RevisionOf(p.w.Plan)
		}
		s.Counts = &g.Counts
		s.History = p.History(s.History, upgradev1.RunOf(s.LatestVersion, s.LatestHash), s.Wave, s.Approval, &g)
	}
	p.Measure(&g, p.w.Ready)
	return g.Progress
}

// applying returns the hostnames of the nodes that hold a slot, in the order of the turns.
func (p *pass) applying() (hostnames []string) {
	for _, t := range p.Turns {
		if t.Unit.HoldsSlot() {
			hostnames = append(hostnames, t.Node.Labels[corev1.LabelHostname])
		}
	}
	return hostnames
}

// transitions returns the Events for the changes from the status before to the present one. problem is why the Plan is not valid.
func transitions(before *upgradev1.PlanStatus, p *upgradev1.Plan, problem error) (all []events.Event) {
	now := &p.Status
	// changed returns the present condition, and whether it differs from before.
	changed := func(kind string) (c upgradev1.Condition, differs bool) {
		c, then := ptr.Deref(now.Condition(kind), upgradev1.Condition{}), ptr.Deref(before.Condition(kind), upgradev1.Condition{})
		return c, c.Type != "" && (then.Status != c.Status || then.Reason != c.Reason || then.Message != c.Message)
	}
	switch c, differs := changed(upgradev1.ConditionValidated); {
	case !differs:
	case c.Status == metav1.ConditionTrue:
		all = append(all, events.PlanValidated(p))
	default:
		failed := events.PlanValidateFailed
		if _, ok := errors.AsType[plan.SelectorError](problem); ok {
			failed = events.PlanSelectNodesFailed
		}
		all = append(all, failed(p, c.Message))
	}
	switch c, differs := changed(upgradev1.ConditionLatestResolved); {
	case differs && c.Message != "" && c.Status != metav1.ConditionUnknown:
		all = append(all, events.PlanResolveFailed(p, c.Message))
	case c.Status == metav1.ConditionTrue && (now.LatestHash != before.LatestHash || now.LatestVersion != before.LatestVersion):
		all = append(all, events.PlanResolved(p))
	}
	unfit := func(u v1alpha1.UnitStatus) bool { return u.Reason == v1alpha1.ReasonWindowsImageMissing }
	if i := slices.IndexFunc(now.Waiting, unfit); i >= 0 && !slices.ContainsFunc(before.Waiting, unfit) {
		all = append(all, events.PlanWindowsUnsupported(p, now.Waiting[i].Node, now.Waiting[i].Message))
	}
	all = append(all, events.Approved(p, before.Approval, before.Wave, now.Wave)...)
	if turn.WaveChanged(before.Wave, now.Wave) {
		all = append(all, events.PlanWave(p, now.Wave))
	}
	all = append(all, halts(before, p)...)
	switch c, differs := changed(upgradev1.ConditionComplete); {
	case differs && c.Reason == upgradev1.ReasonWaiting:
		all = append(all, events.PlanWaiting(p, c.Message))
	case differs && c.Reason == upgradev1.ReasonComplete:
		all = append(all, events.PlanComplete(p))
	}
	return all
}

// halts returns the Events for a halt since the status before, and for a rollback.
func halts(before *upgradev1.PlanStatus, p *upgradev1.Plan) (all []events.Event) {
	now := &p.Status
	stalled := func(s *upgradev1.PlanStatus) string {
		if c := s.Condition(upgradev1.ConditionStalled); c != nil && c.Status == metav1.ConditionTrue {
			return c.Message
		}
		return ""
	}
	if why := turn.HaltedNow(stalled(before), stalled(now), now.Wave); why != "" {
		all = append(all, events.PlanHalted(p, why))
	}
	if now.RolledBack != nil && before.RolledBack == nil {
		all = append(all, events.PlanRolledBack(p))
	}
	return all
}
