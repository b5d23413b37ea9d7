// SPDX-License-Identifier: Apache-2.0

package hostupdate

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/events"
	"moult.dev/moult/internal/kind/hostupdate"
	"moult.dev/moult/internal/metrics"
	"moult.dev/moult/internal/status"
	"moult.dev/moult/internal/turn"
)

// report writes the status if it changed, and then emits the Events.
func (p *pass) report(ctx context.Context, stored *unstructured.Unstructured) error {
	status.SetNodeRolloutProgress(p.rollout, p.count(), p.now)
	p.rollout.Status.ObservedGeneration = p.rollout.Generation
	before := turn.StatusOf(stored)
	written, err := p.Report(ctx, stored, &before, &p.rollout.Status)
	if written {
		p.EmitStarted(func(nodes []string) events.Event { return events.HostsStarted(p.rollout, nodes) })
		p.Events.Emit(turn.Transitions(&before, p.rollout)...)
	}
	return err
}

// count sums up the turns in the status and the metrics, and returns what the conditions are made of.
func (p *pass) count() status.Progress {
	g := p.Summarize(phase)
	g.Ready = p.problem == nil
	if p.problem != nil {
		g.Problem = p.problem.Error()
	}
	s := &p.rollout.Status
	s.Updating, s.Failed, s.Waiting = g.Updating, g.Failed, g.Waiting
	if !p.ready {
		return g.Progress
	}
	if p.unlabelled > 0 {
		g.Note = unlabelled(p.unlabelled)
	}
	p.memo.known, p.memo.before, p.memo.complete = true, p.revision, p.complete()
	if s.Revision != p.revision {
		s.Revision, s.TurnSeconds = p.revision, 0
	}
	s.TurnSeconds = p.TurnSeconds(s.TurnSeconds)
	s.Counts, s.Releases, s.Versions = &g.Counts, p.releases, p.versions
	p.Measure(&g)
	metrics.SetHostVersions(p.rollout.Name, p.versions)
	return g.Progress
}

// complete reports whether no host is known to need what the rollout brings them to, and none is in a turn. Hosts that are silent, or can't say,
// do not keep it from being complete: what they need once they say so is another reboot.
func (p *pass) complete() bool {
	for _, t := range p.Turns {
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

// phase is how far a turn is, since when, and what it waits for.
func phase(t *unit) (v1alpha1.Phase, time.Time, string) {
	if t.Claim == nil {
		return v1alpha1.PhaseClaimed, t.Unit.Since, t.Message // It is about to be adopted, or its claims can't be decoded.
	}
	phase, since := hostupdate.PhaseOf(t.Claim)
	return phase, since.Time, t.Message
}
