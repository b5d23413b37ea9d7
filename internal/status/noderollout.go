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
)

// SetNodeRolloutProgress sets Ready, Reconciling and Stalled.
func SetNodeRolloutProgress(r *v1alpha1.NodeRollout, g Progress, now time.Time) {
	complete, reason := false, ""
	switch {
	case !g.Ready:
		reason = ReasonInvalid
	case g.Counts.Failed > 0:
		reason = reasonFailed
	case g.Counts.Updating > 0:
		reason = reasonUpdating
	case g.Blind != "":
		reason = string(g.Blind)
	case g.Counts.Waiting > 0 && g.Wait != "":
		reason = string(g.Wait)
	case g.Counts.Waiting > 0:
		reason = reasonWaiting
	default:
		complete, reason = true, reasonComplete
	}
	text := progressText(g)
	switch {
	case !g.Ready || g.Blind == "":
	case g.Counts.Total == 0:
		text = g.BlindMessage
	default:
		text += "; " + g.BlindMessage
	}
	if g.Ready && g.Note != "" {
		text += "; " + g.Note
	}
	setKstatus(conditionSetter(&r.Status.Conditions, r.Generation, now), complete, g.stalled(), reason, text)
}
