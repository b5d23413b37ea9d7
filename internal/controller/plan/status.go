// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/events"
	"moult.dev/moult/internal/status"
)

// report writes the status if it changed, and then emits the Events.
func (p *pass) report(ctx context.Context, stored *unstructured.Unstructured, r resolution) error {
	status.SetPlanProgress(p.plan, p.count(r), p.now)
	p.plan.Status.ObservedGeneration = p.plan.Generation
	before := upgradev1.PlanStatus{}
	if content, ok := stored.Object["status"].(map[string]any); ok {
		// A status that can't be decoded is written anew.
		_ = runtime.DefaultUnstructuredConverter.FromUnstructured(content, &before)
	}
	written, err := p.Report(ctx, stored, &before, &p.plan.Status)
	if written {
		p.EmitStarted(func(nodes []string) events.Event { return events.PlanSyncJob(p.plan, nodes) })
		p.Events.Emit(transitions(&before, p.plan, r)...)
	}
	return err
}

// count sums up the turns in the status and the metrics, and returns what the conditions are made of.
func (p *pass) count(r resolution) status.Progress {
	g := p.Summarize(p.phase)
	g.Ready = r.ready
	if r.problem != nil {
		g.Problem = r.problem.Error()
	}
	s := &p.plan.Status
	s.Applying, s.Updating, s.Failed, s.Waiting = p.applying(), g.Updating, g.Failed, g.Waiting
	s.TurnSeconds = p.TurnSeconds(s.TurnSeconds)
	if r.ready {
		s.Counts = &g.Counts
		p.Measure(&g)
	}
	return g.Progress
}

// applying are the hostnames of the nodes that hold a slot, by the name of their node.
func (p *pass) applying() (hostnames []string) {
	for _, t := range p.Turns {
		if t.Unit.HoldsSlot() {
			hostnames = append(hostnames, t.Node.Labels[corev1.LabelHostname])
		}
	}
	return hostnames
}

// phase is how far a turn is.
func (p *pass) phase(t *unit) (v1alpha1.Phase, time.Time, string) {
	if t.job != nil && t.pod == nil {
		if told := t.job.CreationTimestamp.Add(podPatience); told.After(p.now) {
			p.WakeAt(told)
		}
	}
	return t.phase(p.now)
}
