// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/kind/plan"
	"moult.dev/moult/internal/metrics"
	"moult.dev/moult/internal/status"
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
