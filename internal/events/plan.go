// SPDX-License-Identifier: Apache-2.0

package events

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
)

// The Events of a Plan bear system-upgrade-controller's reasons.

// PlanValidated: the spec is valid.
func PlanValidated(p *upgradev1.Plan) Event {
	return Event{p, corev1.EventTypeNormal, "Validated", "The plan is valid"}
}

// PlanValidateFailed: the spec is not valid.
func PlanValidateFailed(p *upgradev1.Plan, why string) Event {
	return Event{p, corev1.EventTypeWarning, "ValidateFailed", "The plan is not valid: " + why}
}

// PlanSelectNodesFailed: the node selector can't be read.
func PlanSelectNodesFailed(p *upgradev1.Plan, why string) Event {
	return Event{p, corev1.EventTypeWarning, "SelectNodesFailed", "Nodes can't be selected: " + why}
}

// PlanWindowsUnsupported: Windows nodes can't be cordoned or drained for want of an image.
func PlanWindowsUnsupported(p *upgradev1.Plan, node, why string) Event {
	return Event{p, corev1.EventTypeWarning, "ValidationFailed", "Node " + node + ": " + why}
}

// PlanResolved: version and hash are known.
func PlanResolved(p *upgradev1.Plan) Event {
	return Event{p, corev1.EventTypeNormal, "Resolved", "Resolved latest version to " + p.Status.LatestVersion + ", hash " + p.Status.LatestHash}
}

// PlanResolveFailed: the version can't be told.
func PlanResolveFailed(p *upgradev1.Plan, why string) Event {
	return Event{p, corev1.EventTypeWarning, "ResolveFailed", "The version can't be resolved: " + why}
}

// PlanWaiting: nodes are outdated and none may be started now.
func PlanWaiting(p *upgradev1.Plan, why string) Event {
	return Event{p, corev1.EventTypeNormal, "Waiting", "No node is started: " + why}
}

// PlanSyncJob: Jobs were made on these nodes.
func PlanSyncJob(p *upgradev1.Plan, nodes []string) Event {
	return Event{p, corev1.EventTypeNormal, "SyncJob", "Started version " + p.Status.LatestVersion + " on Nodes " + strings.Join(nodes, ",")}
}

// PlanJobComplete: a node is updated.
func PlanJobComplete(p *upgradev1.Plan, node string) Event {
	return Event{p, corev1.EventTypeNormal, "JobComplete", "Job completed on Node " + node}
}

// PlanJobCompleteWaiting: a node is updated, and keeps its slot for the delay that the Plan asks for.
func PlanJobCompleteWaiting(p *upgradev1.Plan, node string, delay time.Duration) Event {
	return Event{p, corev1.EventTypeNormal, "JobCompleteWaiting", "Job completed on Node " + node + ", its slot is kept for " + delay.String()}
}

// PlanJobFailed: a node failed.
func PlanJobFailed(p *upgradev1.Plan, why string) Event {
	return Event{p, corev1.EventTypeWarning, "JobFailed", why}
}

// PlanWave: the rollout has come to another wave, or the wave to another state.
func PlanWave(p *upgradev1.Plan, w *v1alpha1.WaveStatus) Event {
	return wave(p, w, "-n "+p.Namespace+" "+p.Name)
}

// wave is what is said of a wave of a rollout, which the plugin calls by this name.
func wave(object runtime.Object, w *v1alpha1.WaveStatus, name string) Event {
	kind, reason := corev1.EventTypeNormal, "Wave"+string(w.State)
	text := fmt.Sprintf("Wave %d of %d (%s), %d of %d nodes updated", w.Number, w.Of, w.Name, w.Updated, w.Nodes)
	switch w.State {
	case v1alpha1.WaveHalted, v1alpha1.WaveUnhealthy:
		kind = corev1.EventTypeWarning
	case v1alpha1.WaveWaitingForApproval:
		reason = string(w.State)
		text += ", approve it with kubectl moult approve " + name
	case v1alpha1.WaveProgressing, v1alpha1.WaveSoaking, v1alpha1.WaveComplete:
	}
	if w.Message != "" {
		text += ": " + w.Message
	}
	return Event{object, kind, reason, text}
}

// PlanHalted: nothing new is started until somebody acts.
func PlanHalted(p *upgradev1.Plan, why string) Event {
	return Event{p, corev1.EventTypeWarning, "Halted", "No more nodes are started: " + why}
}

// PlanComplete: every selected node is updated.
func PlanComplete(p *upgradev1.Plan) Event {
	return Event{p, corev1.EventTypeNormal, "Complete", "All selected nodes have version " + p.Status.LatestVersion + ", hash " + p.Status.LatestHash}
}
