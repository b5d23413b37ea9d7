// SPDX-License-Identifier: Apache-2.0

package view

import (
	"slices"

	"moult.dev/moult/api/v1alpha1"
)

// NeedCause says why a person is needed.
type NeedCause string

// The causes.
const (
	NeedCanaryPaused NeedCause = "CanaryPaused"
	NeedCanaryFailed NeedCause = "CanaryFailed"
	NeedHalted       NeedCause = "Halted"
	NeedStalled      NeedCause = "Stalled"
	NeedFailed       NeedCause = "Failed"
	NeedWaits        NeedCause = "Waits"
	NeedPolicy       NeedCause = "Policy"
	NeedApproval     NeedCause = "Approval"
	NeedBudget       NeedCause = "Budget"
)

// Need is something that only a person can change.
type Need struct {
	Cause NeedCause `json:"-"`
	// Remark is about the rollout or budget. Its Message is empty for NeedFailed.
	Remark `json:",inline"`
	// Nodes have failed, for NeedHalted, NeedStalled and NeedFailed.
	Nodes []string `json:"-"`
}

// Needs lists what needs a person, in the order of the rollouts and budgets.
func Needs(rollouts []Rollout, budgets []Budget) (all []Need) {
	for _, r := range rollouts {
		all = append(all, r.needs()...)
	}
	for _, b := range budgets {
		usedUp := slices.ContainsFunc(b.Holders, func(h v1alpha1.BudgetHolder) bool { return !slices.Contains(byTurns, h.Cause) })
		why := b.Line()
		if b.State == BudgetInvalid && len(b.BlockedBy) > 0 {
			why = b.BlockedBy[0].Message
		}
		if b.State == BudgetInvalid || usedUp && (b.State == BudgetExhausted || b.only != "") {
			all = append(all, Need{NeedBudget, Remark{"NodeDisruptionBudget", "", b.Name, string(b.State) + ", " + why}, nil})
		}
	}
	return all
}

// byTurns are why nodes are unavailable that will be available again by themselves.
var byTurns = []v1alpha1.UnavailableCause{v1alpha1.CauseClaimed, v1alpha1.CauseBeingRemoved, v1alpha1.CauseMinReadySeconds, v1alpha1.CauseDaemonPod}

// forPersons are why nodes wait until a person acts who may not know of it.
var forPersons = []v1alpha1.Reason{
	v1alpha1.ReasonClaimUnreadable, v1alpha1.ReasonHostnameShared, v1alpha1.ReasonMachineUnknown, v1alpha1.ReasonScaleSetUnfit,
	v1alpha1.ReasonScaleSetNotFound, v1alpha1.ReasonCloudDenied,
}

// needs lists what the rollout needs of a person.
func (r *Rollout) needs() (all []Need) {
	var failed []string
	for i := range r.Nodes {
		if n := &r.Nodes[i]; n.State == v1alpha1.UnitFailed && n.RetryAt == nil && (n.Recovers || !n.ContinuesFailed()) {
			failed = append(failed, n.Node)
		}
	}
	add := func(cause NeedCause, message string, nodes []string) {
		all = append(all, Need{cause, Remark{r.Kind, r.Namespace, r.Name, message}, nodes})
	}
	c, w := r.Canary, r.Wave
	if c != nil && c.State != CanaryProgressing {
		cause, did := NeedCanaryPaused, "paused"
		if c.State == CanaryFailed {
			cause, did = NeedCanaryFailed, "failed"
		}
		add(cause, "canary "+c.Revision+" "+did+after(string(c.Reason))+after(c.Message), nil)
	}
	switch {
	case c != nil && c.State == CanaryFailed:
	case r.Halted != "":
		add(NeedHalted, "halted: "+r.Halted, failed)
	case r.State == Stalled:
		add(NeedStalled, "stalled"+after(r.Message), failed)
	case len(failed) > 0:
		add(NeedFailed, "", failed)
	case r.Counts.Updating == 0:
		waits := WaitsOf(r.Nodes)
		if i := slices.IndexFunc(waits, func(w Waits) bool { return slices.Contains(forPersons, w.Reason) }); i >= 0 {
			add(NeedWaits, string(waits[i].Reason)+after(waits[i].Message), nil)
		}
	}
	if r.PolicyMissing != "" {
		add(NeedPolicy, r.PolicyMissing, nil)
	}
	if w != nil && w.State == v1alpha1.WaveWaitingForApproval && r.State != Complete {
		add(NeedApproval, "wave "+w.Name+" waits for approval", nil)
	}
	return all
}

// after returns the text after a colon; nothing if it is empty.
func after(text string) string {
	if text == "" {
		return ""
	}
	return ": " + text
}
