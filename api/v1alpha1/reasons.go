// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Reason says in one word why a unit waits, or why it failed. The same word stands in status, Events, metrics and the
// plugin's output.
type Reason string

// Why a unit waits.
const (
	// ReasonOptedOut: the node carries the rollout's opt-out label; it is not counted among the rollout's units.
	ReasonOptedOut Reason = "OptedOut"
	// ReasonWindowsImageMissing: a Windows node is to be cordoned or drained, and no image for that is configured.
	ReasonWindowsImageMissing Reason = "WindowsImageMissing"
	// ReasonHostnameShared: another node has the same hostname label, so that a Job might run on the wrong one.
	ReasonHostnameShared Reason = "HostnameShared"
	// ReasonOutsideWindow: the rollout's window is closed now.
	ReasonOutsideWindow Reason = "OutsideWindow"
	// ReasonWindowInvalid: the rollout's window can't be understood, so nothing is started.
	ReasonWindowInvalid Reason = "WindowInvalid"
	// ReasonClaimed: another rollout has the node now.
	ReasonClaimed Reason = "Claimed"
	// ReasonClaimUnreadable: the claims on the node can't be read, so nobody may take it.
	ReasonClaimUnreadable Reason = "ClaimUnreadable"
	// ReasonClaimLost: somebody changed the node while it was being claimed; who goes next is decided again at once.
	ReasonClaimLost Reason = "ClaimLost"
	// ReasonJobRefused: the API server refuses the Job, by a quota, a policy, or because it is not valid; the message says
	// why. It is tried again, more and more seldom.
	ReasonJobRefused Reason = "JobRefused"
	// ReasonMaxConcurrent: as many nodes as the rollout allows are in a turn, or have failed and keep their slot.
	ReasonMaxConcurrent Reason = "MaxConcurrent"
)

// Why a unit failed.
const (
	// ReasonJobFailed: the Job on the node failed; the message says how.
	ReasonJobFailed Reason = "JobFailed"
	// ReasonJobLost: the Job is gone and nobody saw how it ended, so it is not run a second time unasked.
	ReasonJobLost Reason = "JobLost"
)
