// SPDX-License-Identifier: Apache-2.0

package hostupdate

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/kind/hostupdate"
	"moult.dev/moult/internal/metrics"
	"moult.dev/moult/internal/status"
	"moult.dev/moult/internal/turn"
)

// report writes the status if it differs from before, and then emits the Events.
func (p *pass) report(ctx context.Context, stored *unstructured.Unstructured, before *v1alpha1.NodeRolloutStatus) error {
	r := p.w.Rollout
	g := p.count()
	metrics.SetStalled(p.Name(), g.Stalled())
	status.SetNodeRolloutProgress(r, g, p.w.Now)
	r.Status.ObservedGeneration = r.Generation
	return p.Report(ctx, stored, before, &r.Status, func() { p.Events.Emit(turn.Transitions(before, r)...) })
}

// reportPolicy writes to the status that the policy of the agents is missing, while it is.
func (c *Controller) reportPolicy(ctx context.Context, r *v1alpha1.NodeRollout, now time.Time) {
	problem := c.policy.agentsUnbounded(ctx, now)
	if problem == "" {
		meta.RemoveStatusCondition(&r.Status.Conditions, v1alpha1.ConditionAgentsBounded)
		return
	}
	meta.SetStatusCondition(&r.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionAgentsBounded, Status: metav1.ConditionFalse, Reason: "PolicyMissing", Message: problem,
		LastTransitionTime: metav1.Time{Time: now}, ObservedGeneration: r.Generation,
	})
}

// count writes the counts of turns to the status and the metrics. It returns the input of the conditions.
func (p *pass) count() status.Progress {
	g := p.Summarize(hostupdate.Phase)
	g.Ready = p.problem == nil
	if p.problem != nil {
		g.Problem = p.problem.Error()
	}
	s := &p.w.Rollout.Status
	s.Updating, s.Failed, s.Waiting = g.Updating, g.Failed, g.Waiting
	if !p.w.Ready {
		return g.Progress
	}
	if p.w.RolledBack != "" {
		g.Note = "rolled back from " + p.w.RolledBack
	}
	if n := len(p.w.Unlabelled); n > 0 {
		g.Note = fmt.Sprintf("selected nodes without a label that names their host's interface are ignored: %d", n)
	}
	g.Note = cmp.Or(p.w.Note(), g.Note)
	if s.Revision != p.w.Revision {
		s.Revision, s.TurnSeconds = p.w.Revision, 0
	}
	s.TurnSeconds = p.TurnSeconds(s.TurnSeconds)
	if s.RolledBack = p.w.RolledBack; g.Counts.Updated == g.Counts.Total && len(p.w.Versions) == 1 && hostupdate.CompareVersions(p.w.Versions[0].Version, s.Revision) == 0 {
		s.LastComplete = p.w.Versions[0].Version
	}
	// Until hosts report, the revision may be wrong. No run begins with them.
	isSilent := g.Wait == v1alpha1.ReasonHostSilent && g.Counts.Updating+g.Counts.Failed == 0
	if !isSilent || len(s.History) > 0 && s.History[0].Revision == s.Revision {
		s.History = p.History(s.History, s.Revision, s.Wave, s.Approval, &g)
	}
	s.Counts, s.Releases, s.Versions = &g.Counts, p.w.Releases, p.w.Versions
	p.Measure(&g, true)
	metrics.SetHostVersions(p.w.Rollout.Name, p.w.Versions)
	return g.Progress
}
