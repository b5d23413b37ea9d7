// SPDX-License-Identifier: Apache-2.0

package why

import (
	"slices"
	"time"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cli/target"
	"moult.dev/moult/internal/view"
)

// advise says what a person may do.
func advise(w *view.Why, p *view.Part, now time.Time) []string {
	r, u := &p.Rollout, &p.Unit
	named := target.Arg(r.Kind, r.Namespace, r.Name)
	if r.Kind == target.DaemonSet.Name {
		return ofDaemon(p, w, named)
	}
	switch {
	case r.Kind == target.NodeRollout.Name && p.Replaces:
		return ofMachine(p, w, named)
	case r.Kind == target.NodeRollout.Name:
		return ofHost(p, w, named, now)
	}
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

// ofDaemon says what to do about a daemon's pod.
func ofDaemon(p *view.Part, w *view.Why, named string) []string {
	r := &p.Rollout
	var all []string
	for i := range p.Pods {
		if o := &p.Pods[i]; o.Message != "" && o.Deleted == nil {
			all = append(all, "see what keeps the pod from being ready: kubectl describe pod "+o.Name+" -n "+r.Namespace)
		}
	}
	if c := r.Canary; c != nil && (p.Unit.Canary || len(p.Checks) > 0 || c.State == view.CanaryFailed) {
		switch c.State {
		case view.CanaryPaused:
			all = append(all, "when that is mended: "+eds(r, "canary unpause")+"; or give it up: "+eds(r, "canary fail"))
		case view.CanaryFailed:
			all = append(all, "change the template, or try the same again: "+eds(r, "canary reset"))
		case view.CanaryProgressing:
		}
	}
	for _, c := range p.Checks {
		if advice := aboutDaemon(c, p, w, named); advice != "" && !slices.Contains(all, advice) {
			all = append(all, advice)
		}
	}
	if p.Unit.State == v1alpha1.UnitOutdated && len(p.Checks) > 0 && !p.Waits() {
		all = append(all, "nothing keeps it back: it is started within moments. If it is not, does the operator run?")
	}
	return all
}

// aboutDaemon says what to do about a reason why a daemon's pod is not replaced.
func aboutDaemon(c view.Check, p *view.Part, w *view.Why, named string) string {
	r := &p.Rollout
	switch {
	case c.Reason == v1alpha1.ReasonPaused && c.Name == "canary":
		return "" // That is said already.
	case c.Reason == v1alpha1.ReasonPaused && r.PausedBy == edsv1.AnnotationRolloutFrozen:
		return eds(r, "unfreeze-rollout")
	case c.Reason == v1alpha1.ReasonPaused && r.PausedBy != "":
		return eds(r, "unpause-rolling-update")
	case c.Reason == v1alpha1.ReasonHalted:
		return "see which pods do not start: kubectl moult status " + named
	case c.Reason == v1alpha1.ReasonOnDelete && len(p.Pods) > 0:
		return "kubectl delete pod " + p.Pods[0].Name + " -n " + r.Namespace
	}
	return about(c.Reason, w, named)
}

// eds is a command line of `kubectl eds`.
func eds(r *view.Rollout, what string) string {
	return "kubectl eds " + what + " " + r.Name + " -n " + r.Namespace
}

// failed says what to do about a failed turn.
func failed(node string, r *view.Rollout, u *view.Node) []string {
	jobs := "kubectl logs -n " + r.Namespace + " -l " + upgradev1.LabelPlan + "=" + r.Name + "," + upgradev1.LabelNode + "=" + node + " --all-containers"
	var all []string
	switch u.Reason {
	case v1alpha1.ReasonJobFailed:
		all = append(all, "see what it wrote: "+jobs)
	case v1alpha1.ReasonJobLost:
		all = append(all, "look on the node how far the change came: it may have been done")
	case v1alpha1.ReasonTurnTimeout:
		all = append(all, "see what it wrote: "+jobs, "if turns may take longer, raise spec.strategy.turnTimeout")
	case v1alpha1.ReasonDrainTimeout:
		all = append(all, "the log of the container drain says what it waited for; spec.drain says what it may do and how long it may take")
	}
	return append(all, again(node, u)...)
}

// again says how a failed turn is tried again.
func again(node string, u *view.Node) []string {
	var all []string
	if u.Skipped {
		all = append(all, "the node was given back as it was, and the rollout goes on without it")
	}
	retry := "mend it, then: kubectl moult retry " + node + "; any change of the rollout but of its strategy tries it again too"
	if u.RetryAt != nil {
		retry = "it is tried again by itself at " + u.RetryAt.UTC().Format(time.RFC3339) + "; at once: kubectl moult retry " + node
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
