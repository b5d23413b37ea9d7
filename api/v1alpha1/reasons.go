// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Reason says in one word why a unit waits, or why it failed. Status, Events, metrics and the plugin use the same word.
type Reason string

// Why a unit waits.
const (
	// ReasonOptedOut: the node carries the rollout's opt-out label; it is not counted among the rollout's units.
	ReasonOptedOut Reason = "OptedOut"
	// ReasonWindowsImageMissing: a Windows node needs a cordon or drain, and no image for that is configured.
	ReasonWindowsImageMissing Reason = "WindowsImageMissing"
	// ReasonHostnameShared: another node has the same hostname label, so that a Job might run on the wrong one.
	ReasonHostnameShared Reason = "HostnameShared"
	// ReasonOutsideWindow: the rollout's window is closed now.
	ReasonOutsideWindow Reason = "OutsideWindow"
	// ReasonWindowInvalid: the rollout's window can't be understood, so nothing is started.
	ReasonWindowInvalid Reason = "WindowInvalid"
	// ReasonClaimed: another rollout has the node now.
	ReasonClaimed Reason = "Claimed"
	// ReasonClaimUnreadable: the claims on the node can't be read, so no rollout may take it.
	ReasonClaimUnreadable Reason = "ClaimUnreadable"
	// ReasonClaimLost: the node changed while it was being claimed. The operator decides again at once.
	ReasonClaimLost Reason = "ClaimLost"
	// ReasonJobRefused: the API server refuses the Job because of a quota, a policy or an invalid field; the message says
	// which. The operator retries with growing delays.
	ReasonJobRefused Reason = "JobRefused"
	// ReasonPaused: the rollout's strategy says paused.
	ReasonPaused Reason = "Paused"
	// ReasonStrategyInvalid: the rollout's strategy can't be understood, so nothing is started.
	ReasonStrategyInvalid Reason = "StrategyInvalid"
	// ReasonHalted: more nodes have failed than the strategy allows, or a canary node has failed.
	ReasonHalted Reason = "Halted"
	// ReasonWavePending: the node is in a later wave, and the current one is not done.
	ReasonWavePending Reason = "WavePending"
	// ReasonWaveSoaking: the node is in a later wave, and the current one soaks.
	ReasonWaveSoaking Reason = "WaveSoaking"
	// ReasonWaveUnhealthy: the node is in a later wave, and not all nodes of the current one are healthy.
	ReasonWaveUnhealthy Reason = "WaveUnhealthy"
	// ReasonWaitingForApproval: the node is in a later wave, and a person must approve the current one.
	ReasonWaitingForApproval Reason = "WaitingForApproval"
	// ReasonMaxConcurrent: as many nodes as the rollout allows are in a turn, or have failed and keep their slot.
	ReasonMaxConcurrent Reason = "MaxConcurrent"
)

// Why a daemon pod is not replaced.
const (
	// ReasonOnDelete: the strategy is OnDelete: people delete outdated pods.
	ReasonOnDelete Reason = "OnDelete"
	// ReasonNodeUnfit: no new pod would be created on the node, so the old one stays.
	ReasonNodeUnfit Reason = "NodeUnfit"
	// ReasonNodeNotReady: the node is not ready, or is under maintenance.
	ReasonNodeNotReady Reason = "NodeNotReady"
	// ReasonSlowStart: as many pods are in creation as the slow start allows, or reconcileFrequency has not passed since
	// the last batch.
	ReasonSlowStart Reason = "SlowStart"
)

// Why a host does not start an update that it has or may have.
const (
	// ReasonDetectOnly: the rollout only shows which hosts have an update.
	ReasonDetectOnly Reason = "DetectOnly"
	// ReasonVersionNotOffered: the host offers no update, or another version than the requested one.
	ReasonVersionNotOffered Reason = "VersionNotOffered"
	// ReasonReleaseTooYoung: the version has been known for less time than minimumAge.
	ReasonReleaseTooYoung Reason = "ReleaseTooYoung"
	// ReasonHostSilent: the host's agent has not reported whether there is an update; the message names the pending
	// request.
	ReasonHostSilent Reason = "HostSilent"
	// ReasonHostError: the host's agent could not find out whether there is an update; the message comes from the agent.
	ReasonHostError Reason = "HostError"
	// ReasonHostGone: the node lost the label that names its host's interface during a turn.
	ReasonHostGone Reason = "HostGone"
)

// Why a machine that is, or may be, outdated is not replaced, or is not yet drained.
const (
	// ReasonMachineUnknown: the cloud does not know the node's machine, the machine is in no scale set of the rollout, or a
	// failed machine has no Node.
	ReasonMachineUnknown Reason = "MachineUnknown"
	// ReasonMachineProtected: the machine has deletion protection in the cloud.
	ReasonMachineProtected Reason = "MachineProtected"
	// ReasonSurgeExhausted: the scale set already has as many extra machines as surge allows.
	ReasonSurgeExhausted Reason = "SurgeExhausted"
	// ReasonScaleSetFull: the scale set is at its maximum.
	ReasonScaleSetFull Reason = "ScaleSetFull"
	// ReasonScaleSetBusy: the cloud, or another client of it, is changing the scale set.
	ReasonScaleSetBusy Reason = "ScaleSetBusy"
	// ReasonScaleSetUnfit: the scale set would replace machines by itself, or can't be changed as needed; the message says
	// how.
	ReasonScaleSetUnfit Reason = "ScaleSetUnfit"
	// ReasonScaleSetNotFound: the cloud does not know the scale set.
	ReasonScaleSetNotFound Reason = "ScaleSetNotFound"
	// ReasonCloudQuota: the cloud has no room or no quota for one more machine.
	ReasonCloudQuota Reason = "CloudQuota"
	// ReasonCloudThrottled: the cloud rejects requests because there are too many; the operator waits.
	ReasonCloudThrottled Reason = "CloudThrottled"
	// ReasonCloudDenied: the operator lacks a permission in the cloud, or its credentials are not accepted.
	ReasonCloudDenied Reason = "CloudDenied"
	// ReasonCloudError: the cloud does not answer, or its answer can't be understood.
	ReasonCloudError Reason = "CloudError"
	// ReasonReplacementPending: the replacement machine is not ready yet.
	ReasonReplacementPending Reason = "ReplacementPending"
	// ReasonEtcdUnhealthy: a member of etcd is not healthy or is a learner, or the quorum of etcd would be at risk.
	ReasonEtcdUnhealthy Reason = "EtcdUnhealthy"
)

// Why a NodeDisruptionBudget does not let a unit start.
const (
	// ReasonBudgetInvalid: a budget that selects the node, or might select it, is invalid.
	ReasonBudgetInvalid Reason = "BudgetInvalid"
	// ReasonBudgetPaused: a budget is paused.
	ReasonBudgetPaused Reason = "BudgetPaused"
	// ReasonOutsideBudgetWindow: a budget's windows are closed now.
	ReasonOutsideBudgetWindow Reason = "OutsideBudgetWindow"
	// ReasonWorkloadsUnavailable: an evicted workload is not available again, or a workload has too few available pods.
	ReasonWorkloadsUnavailable Reason = "WorkloadsUnavailable"
	// ReasonPodsBlock: pods that the budget selects are running.
	ReasonPodsBlock Reason = "PodsBlock"
	// ReasonAlertsActive: Prometheus has alerts.
	ReasonAlertsActive Reason = "AlertsActive"
	// ReasonAlertsUnreachable: Prometheus does not answer, its answer can't be understood, or the Secret with credentials for it can't be used.
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
	// ReasonJobLost: the Job is gone and its result is unknown. It runs again only after a retry is requested.
	ReasonJobLost Reason = "JobLost"
	// ReasonTurnTimeout: the turn took longer than the strategy allows.
	ReasonTurnTimeout Reason = "TurnTimeout"
	// ReasonDrainTimeout: the drain did not finish in time; the message lists what remains.
	ReasonDrainTimeout Reason = "DrainTimeout"
	// ReasonDrainRefused: the node has pods that the drain may not evict; the message names them.
	ReasonDrainRefused Reason = "DrainRefused"
	// ReasonHostUpdateFailed: the host's agent reports that a step of the update failed; the message comes from the agent.
	ReasonHostUpdateFailed Reason = "HostUpdateFailed"
	// ReasonNotRebooted: the host was ordered to reboot, and its boot id is unchanged.
	ReasonNotRebooted Reason = "NotRebooted"
	// ReasonVersionUnchanged: the host has rebooted, and does not run the target version.
	ReasonVersionUnchanged Reason = "VersionUnchanged"
	// ReasonRebootTimeout: the host was ordered to reboot, and was not ready again in time.
	ReasonRebootTimeout Reason = "RebootTimeout"
	// ReasonReplacementFailed: the replacement machine could not be created, or its node was not ready in time.
	ReasonReplacementFailed Reason = "ReplacementFailed"
	// ReasonDeleteFailed: the cloud did not delete the machine.
	ReasonDeleteFailed Reason = "DeleteFailed"
	// ReasonPodFailed: the new daemon pod can't start, or restarts again and again.
	ReasonPodFailed Reason = "PodFailed"
)
