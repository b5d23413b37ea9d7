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
	// ReasonPaused: the rollout's strategy says paused.
	ReasonPaused Reason = "Paused"
	// ReasonStrategyInvalid: the rollout's strategy can't be understood, so nothing is started.
	ReasonStrategyInvalid Reason = "StrategyInvalid"
	// ReasonHalted: more nodes have failed than the strategy bears, or one of the canary has.
	ReasonHalted Reason = "Halted"
	// ReasonWavePending: the node is in a later wave, and the current one is not done.
	ReasonWavePending Reason = "WavePending"
	// ReasonWaveSoaking: the node is in a later wave, and the current one soaks.
	ReasonWaveSoaking Reason = "WaveSoaking"
	// ReasonWaveUnhealthy: the node is in a later wave, and not all nodes of the current one are healthy.
	ReasonWaveUnhealthy Reason = "WaveUnhealthy"
	// ReasonWaitingForApproval: the node is in a later wave, and somebody must approve the current one.
	ReasonWaitingForApproval Reason = "WaitingForApproval"
	// ReasonMaxConcurrent: as many nodes as the rollout allows are in a turn, or have failed and keep their slot.
	ReasonMaxConcurrent Reason = "MaxConcurrent"
)

// Why a daemon pod is not replaced.
const (
	// ReasonOnDelete: the strategy leaves it to people to delete outdated pods.
	ReasonOnDelete Reason = "OnDelete"
	// ReasonNodeUnfit: no new pod would be made on the node, so that the old one stays.
	ReasonNodeUnfit Reason = "NodeUnfit"
	// ReasonNodeNotReady: the node is not ready, or is being worked on.
	ReasonNodeNotReady Reason = "NodeNotReady"
	// ReasonSlowStart: as many pods are in creation as the slow start allows, or the last ones were replaced a moment ago.
	ReasonSlowStart Reason = "SlowStart"
)

// Why a NodeDisruptionBudget does not let a unit start.
const (
	// ReasonBudgetInvalid: a budget that selects the node, or may do so, can't be understood.
	ReasonBudgetInvalid Reason = "BudgetInvalid"
	// ReasonBudgetPaused: a budget is paused.
	ReasonBudgetPaused Reason = "BudgetPaused"
	// ReasonOutsideBudgetWindow: a budget's windows are closed now.
	ReasonOutsideBudgetWindow Reason = "OutsideBudgetWindow"
	// ReasonWorkloadsUnavailable: what was evicted is not available again, or a workload has too few available pods.
	ReasonWorkloadsUnavailable Reason = "WorkloadsUnavailable"
	// ReasonPodsBlock: there are pods that block.
	ReasonPodsBlock Reason = "PodsBlock"
	// ReasonAlertsActive: Prometheus has alerts.
	ReasonAlertsActive Reason = "AlertsActive"
	// ReasonAlertsUnreachable: Prometheus does not answer, or not with sense.
	ReasonAlertsUnreachable Reason = "AlertsUnreachable"
	// ReasonBudgetExhausted: as many nodes are unavailable as a budget allows.
	ReasonBudgetExhausted Reason = "BudgetExhausted"
	// ReasonMaxDomains: there are unavailable nodes in as many domains as a budget allows, and the node is in another.
	ReasonMaxDomains Reason = "MaxDomains"
)

// Why a unit failed.
const (
	// ReasonJobFailed: the Job on the node failed; the message says how.
	ReasonJobFailed Reason = "JobFailed"
	// ReasonJobLost: the Job is gone and nobody saw how it ended, so it is not run a second time unasked.
	ReasonJobLost Reason = "JobLost"
	// ReasonTurnTimeout: the turn took longer than the strategy allows.
	ReasonTurnTimeout Reason = "TurnTimeout"
	// ReasonDrainTimeout: the time for the drain was over; the message says what was left.
	ReasonDrainTimeout Reason = "DrainTimeout"
	// ReasonPodFailed: the new daemon pod can't start, or restarts again and again.
	ReasonPodFailed Reason = "PodFailed"
)
