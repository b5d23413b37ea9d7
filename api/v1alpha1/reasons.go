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

// Why a host that has, or may have, an update is not told to take it.
const (
	// ReasonDetectOnly: the rollout only shows which hosts have an update.
	ReasonDetectOnly Reason = "DetectOnly"
	// ReasonVersionNotOffered: the host has another version to offer than the one that is asked for, or none.
	ReasonVersionNotOffered Reason = "VersionNotOffered"
	// ReasonReleaseTooYoung: the version has not been known for as long as the rollout asks for.
	ReasonReleaseTooYoung Reason = "ReleaseTooYoung"
	// ReasonHostSilent: the host's agent has not said whether there is an update; the message says what it was asked.
	ReasonHostSilent Reason = "HostSilent"
	// ReasonHostError: the host's agent could not find out whether there is an update; the message is its own.
	ReasonHostError Reason = "HostError"
	// ReasonHostGone: the node has lost the label that names its host's interface in the middle of a turn.
	ReasonHostGone Reason = "HostGone"
)

// Why a machine that is, or may be, outdated is not replaced, or is not yet drained.
const (
	// ReasonMachineUnknown: the cloud does not know the node's machine, it is in no scale set that the rollout is for, or a failed machine has no Node.
	ReasonMachineUnknown Reason = "MachineUnknown"
	// ReasonMachineProtected: the cloud is told not to let the machine be deleted.
	ReasonMachineProtected Reason = "MachineProtected"
	// ReasonSurgeExhausted: the scale set has as many machines more than before as the rollout allows.
	ReasonSurgeExhausted Reason = "SurgeExhausted"
	// ReasonScaleSetFull: the scale set is at its maximum.
	ReasonScaleSetFull Reason = "ScaleSetFull"
	// ReasonScaleSetBusy: the scale set is being changed, by somebody else or by the cloud itself.
	ReasonScaleSetBusy Reason = "ScaleSetBusy"
	// ReasonScaleSetUnfit: the scale set is set up so that it would replace machines by itself, or can't be changed as is needed; the message says how.
	ReasonScaleSetUnfit Reason = "ScaleSetUnfit"
	// ReasonScaleSetNotFound: the cloud does not know the scale set.
	ReasonScaleSetNotFound Reason = "ScaleSetNotFound"
	// ReasonCloudQuota: the cloud has no room or no quota for one more machine.
	ReasonCloudQuota Reason = "CloudQuota"
	// ReasonCloudThrottled: the cloud is asked too often, by whomever, and wants to be left alone for a while.
	ReasonCloudThrottled Reason = "CloudThrottled"
	// ReasonCloudDenied: the operator is not allowed to do what it must, or can't prove who it is.
	ReasonCloudDenied Reason = "CloudDenied"
	// ReasonCloudError: the cloud does not answer, or not with sense.
	ReasonCloudError Reason = "CloudError"
	// ReasonReplacementPending: the machine that takes the place is not ready yet.
	ReasonReplacementPending Reason = "ReplacementPending"
	// ReasonEtcdUnhealthy: a member of etcd is not healthy, is a learner, or its quorum would be at risk.
	ReasonEtcdUnhealthy Reason = "EtcdUnhealthy"
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
	// ReasonDrainRefused: there are pods on the node that the drain may not evict; the message names them.
	ReasonDrainRefused Reason = "DrainRefused"
	// ReasonHostUpdateFailed: the host's agent says that a step of the update failed; the message is its own.
	ReasonHostUpdateFailed Reason = "HostUpdateFailed"
	// ReasonNotRebooted: the host was told to reboot, and its boot id is the same as before.
	ReasonNotRebooted Reason = "NotRebooted"
	// ReasonVersionUnchanged: the host has rebooted, and does not run the version that it was to run.
	ReasonVersionUnchanged Reason = "VersionUnchanged"
	// ReasonRebootTimeout: the host was told to reboot, and was not back in time.
	ReasonRebootTimeout Reason = "RebootTimeout"
	// ReasonReplacementFailed: the machine that was to take the place could not be made, or its node was not ready in time.
	ReasonReplacementFailed Reason = "ReplacementFailed"
	// ReasonDeleteFailed: the cloud did not delete the machine.
	ReasonDeleteFailed Reason = "DeleteFailed"
	// ReasonPodFailed: the new daemon pod can't start, or restarts again and again.
	ReasonPodFailed Reason = "PodFailed"
)
