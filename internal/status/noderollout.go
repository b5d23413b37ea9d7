// SPDX-License-Identifier: Apache-2.0

package status

import (
	"time"

	"moult.dev/moult/api/v1alpha1"
)

// Reasons of a NodeRollout's conditions, besides the reasons why its nodes wait.
const (
	// ReasonInvalid: the spec is invalid.
	ReasonInvalid = "Invalid"

	reasonComplete = "Complete"
	reasonUpdating = "Updating"
	reasonFailed   = "Failed"
	reasonWaiting  = "Waiting"

	reasonNotPaused = "NotPaused"
)

// SetNodeRolloutProgress sets Ready, Reconciling, Stalled, Progressing and Paused.
func SetNodeRolloutProgress(r *v1alpha1.NodeRollout, g Progress, now time.Time) {
	complete, reason := false, ""
	switch {
	case !g.Ready:
		reason = ReasonInvalid
	case g.Counts.Failed > 0:
		reason = reasonFailed
	case g.Counts.Updating > 0:
		reason = reasonUpdating
	case g.Unknown != "":
		reason = string(g.Unknown)
	case g.Counts.Waiting > 0 && g.Wait != "":
		reason = string(g.Wait)
	case g.Counts.Waiting > 0:
		reason = reasonWaiting
	default:
		complete, reason = true, reasonComplete
	}
	set := conditionSetter(&r.Status.Conditions, r.Generation, now)
	setKstatus(set, complete, g.Stalled(), reason, progressText(g))
	progressing := g.Ready && g.Counts.Updating > 0
	if progressing {
		reason = reasonUpdating
	}
	set(v1alpha1.ConditionProgressing, progressing, reason, "")
	setPaused(set, r.Spec.Strategy != nil && r.Spec.Strategy.Paused)
}

// setPaused sets the condition Paused.
func setPaused(set func(kind string, status bool, reason, message string), paused bool) {
	reason := reasonNotPaused
	if paused {
		reason = string(v1alpha1.ReasonPaused)
	}
	set(v1alpha1.ConditionPaused, paused, reason, "")
}
