// SPDX-License-Identifier: Apache-2.0

package events

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
)

type plan = *upgradev1.Plan

// The Events of a Plan have system-upgrade-controller's reasons.
var (
	// PlanValidated: the spec is valid.
	PlanValidated = fixed[plan](normal, "Validated", "The plan is valid")
	// PlanValidateFailed: the spec is not valid.
	PlanValidateFailed = saying[plan](warning, "ValidateFailed", "The plan is not valid: %s")
	// PlanSelectNodesFailed: the node selector is not valid.
	PlanSelectNodesFailed = saying[plan](warning, "SelectNodesFailed", "Nodes can't be selected: %s")
	// PlanResolveFailed: the version is not known.
	PlanResolveFailed = saying[plan](warning, "ResolveFailed", "The version can't be resolved: %s")
	// PlanResolved: version and hash are known.
	PlanResolved = computed(normal, "Resolved", func(p plan) string {
		return "Resolved latest version to " + p.Status.LatestVersion + ", hash " + p.Status.LatestHash
	})
	// PlanSyncJob: these nodes have Jobs. Names of nodes follow.
	PlanSyncJob = computed(normal, "SyncJob", func(p plan) string { return "Started version " + p.Status.LatestVersion + " on Nodes " })
	// PlanComplete: every selected node is updated.
	PlanComplete = computed(normal, "Complete", func(p plan) string {
		return "All selected nodes have version " + p.Status.LatestVersion + ", hash " + p.Status.LatestHash
	})
	// PlanWaiting: nodes are outdated and none may be started now.
	PlanWaiting = saying[plan](normal, "Waiting", "No node is started: %s")
	// PlanJobComplete: these nodes are updated. Names of nodes follow.
	PlanJobComplete = fixed[plan](normal, "JobComplete", "Job completed on Nodes ")
	// PlanJobFailed: a node failed.
	PlanJobFailed = saying[plan](warning, "JobFailed", "%s")
	// PlanHalted: nothing new is started until a person acts.
	PlanHalted = saying[plan](warning, "Halted", "No more nodes are started: %s")
	// PlanRolledBack: nodes are brought back to the last complete version.
	PlanRolledBack = computed(warning, "RolledBack", func(p plan) string {
		return "Nodes are brought back to version " + p.Status.LastComplete.Version + ": more turns have failed with " + p.Status.RolledBack.Version +
			" than the strategy allows"
	})
)

// PlanWindowsUnsupported: no image can cordon or drain a Windows node.
func PlanWindowsUnsupported(p *upgradev1.Plan, node, why string) Event {
	return Event{p, warning, "ValidationFailed", "Node " + node + ": " + why}
}

// PlanJobCompleteWaiting: a node is updated, and keeps its slot for the delay that the Plan sets.
func PlanJobCompleteWaiting(p *upgradev1.Plan, node string, delay time.Duration) Event {
	return Event{p, normal, "JobCompleteWaiting", "Job completed on Node " + node + ", its slot is kept for " + delay.String()}
}

// PlanWave: another wave is current, or the wave has another state.
func PlanWave(p *upgradev1.Plan, w *v1alpha1.WaveStatus) Event {
	return wave(p, w, "-n "+p.Namespace+" "+p.Name)
}

// Approved returns the Event about the approval with which the rollout has left a wave; none if no person is known who approved it.
func Approved(object runtime.Object, approval *v1alpha1.WaveApproval, before, now *v1alpha1.WaveStatus) []Event {
	if approval == nil || before == nil || approval.Of != before.ApproveWith || now != nil && now.ApproveWith == before.ApproveWith {
		return nil
	}
	return []Event{{object, normal, "Approved", "Wave " + before.Name + " was approved by " + approval.By + " (" + approval.Of + ")"}}
}

// wave returns the Event about a wave of a rollout. name is the argument for kubectl moult approve.
func wave(object runtime.Object, w *v1alpha1.WaveStatus, name string) Event {
	kind, reason := normal, "Wave"+string(w.State)
	text := fmt.Sprintf("Wave %d of %d (%s), %d of %d nodes updated", w.Number, w.Of, w.Name, w.Updated, w.Nodes)
	switch w.State {
	case v1alpha1.WaveHalted, v1alpha1.WaveUnhealthy:
		kind = warning
	case v1alpha1.WaveWaitingForApproval:
		reason = string(w.State)
		text += ", approve it with kubectl moult approve " + name
	}
	return Event{object, kind, reason, text + because("", w.Message)}
}
