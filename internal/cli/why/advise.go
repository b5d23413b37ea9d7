// SPDX-License-Identifier: Apache-2.0

package why

import (
	"slices"
	"time"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/view"
)

// advise says what a person may do.
func advise(w *view.Why, p *view.Part) []string {
	r, u := &p.Rollout, &p.Unit
	named := r.Name + " -n " + r.Namespace
	switch {
	case p.OptedOut:
		return []string{"the label " + upgradev1.LabelPlanHash(r.Name) + "=" + upgradev1.LabelDisabled + " keeps it out: without it the node is selected"}
	case u.State == v1alpha1.UnitFailed:
		return failed(w.Node.Name, r, u)
	case u.State == v1alpha1.UnitOutdated && p.Place > 0 && !p.Waits():
		return []string{"nothing keeps it back: it is started within moments. If it is not, does the operator run?"}
	case u.State != v1alpha1.UnitOutdated:
		return nil
	}
	var all []string
	for _, c := range p.Checks {
		if advice := about(c.Reason, w, named); advice != "" && !slices.Contains(all, advice) {
			all = append(all, advice)
		}
	}
	return all
}

// failed says what to do about a failed turn.
func failed(node string, r *view.Rollout, u *view.Node) []string {
	jobs := "kubectl logs -n " + r.Namespace + " -l " + upgradev1.LabelPlan + "=" + r.Name + "," + upgradev1.LabelNode + "=" + node + " --all-containers"
	retry := "mend it, then: kubectl moult retry " + node + "; any change of the rollout but of its strategy tries it again too"
	if u.RetryAt != nil {
		retry = "it is tried again by itself at " + u.RetryAt.UTC().Format(time.RFC3339) + "; at once: kubectl moult retry " + node
	}
	var all []string
	switch u.Reason {
	case v1alpha1.ReasonJobFailed:
		all = append(all, "see what it wrote: "+jobs)
	case v1alpha1.ReasonJobLost:
		all = append(all, "look on the node how far the change came: it may have been done")
	case v1alpha1.ReasonTurnTimeout:
		all = append(all, "see what it wrote: "+jobs, "if turns may take longer, raise spec.strategy.turnTimeout")
	case v1alpha1.ReasonDrainTimeout:
		all = append(all, "what the drain waited for stands above; spec.drain says what it may do and how long it may take")
	}
	if u.Skipped {
		all = append(all, "the node was given back as it was, and the rollout goes on without it")
	}
	return append(all, retry)
}

// about says what to do about a reason to wait; "" where only time or others can.
func about(r v1alpha1.Reason, w *view.Why, named string) string {
	switch r {
	case v1alpha1.ReasonPaused:
		return "kubectl moult resume " + named
	case v1alpha1.ReasonWaitingForApproval:
		return "kubectl moult approve " + named
	case v1alpha1.ReasonHalted:
		return "see what failed, mend it, then: kubectl moult retry " + named
	case v1alpha1.ReasonWindowInvalid, v1alpha1.ReasonStrategyInvalid, v1alpha1.ReasonBudgetInvalid:
		return "correct the field that the message names"
	case v1alpha1.ReasonClaimUnreadable:
		return "mend or remove the annotation " + v1alpha1.AnnotationClaims + " of the node"
	case v1alpha1.ReasonBudgetPaused:
		for i := range w.Budgets {
			if b := &w.Budgets[i]; slices.ContainsFunc(b.BlockedBy, func(block view.Block) bool { return block.Gate == r }) {
				return "kubectl moult resume ndb/" + b.Name
			}
		}
	case v1alpha1.ReasonHostnameShared:
		return "give each node a label kubernetes.io/hostname of its own"
	case v1alpha1.ReasonMaxConcurrent:
		return "who has the slots: kubectl moult status " + named
	case v1alpha1.ReasonClaimed:
		for i := range w.Rollouts {
			if o := &w.Rollouts[i]; o.Unit.State == v1alpha1.UnitFailed && !o.Unit.Skipped {
				return "it failed there: mend that first, or it keeps the node"
			}
		}
	}
	return ""
}
