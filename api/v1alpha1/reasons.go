// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Reason says in one word why a unit waits, or why it failed. Status, Events, metrics and the plugin use the same word.
type Reason string

// Why a unit waits.
const (
	// ReasonOptedOut: the node carries the rollout's opt-out label; it is not counted among the rollout's units. Ends:
	// the label goes: kubectl label node NODE LABEL-.
	ReasonOptedOut Reason = "OptedOut"
	// ReasonWindowsImageMissing: a Windows node needs a cordon or drain, and no image for that is configured. Ends:
	// SYSTEM_UPGRADE_JOB_KUBECTL_IMAGE_WINDOWS names an image.
	ReasonWindowsImageMissing Reason = "WindowsImageMissing"
	// ReasonHostnameShared: another node has the same hostname label, so that a Job might run on the wrong one. Ends:
	// each node gets a label kubernetes.io/hostname of its own.
	ReasonHostnameShared Reason = "HostnameShared"
	// ReasonOutsideWindow: the rollout's window is closed now. Ends: the window opens; the message says when.
	ReasonOutsideWindow Reason = "OutsideWindow"
	// ReasonWindowInvalid: the rollout's window can't be understood, so nothing is started. Ends: the field that the
	// message names is corrected.
	ReasonWindowInvalid Reason = "WindowInvalid"
	// ReasonClaimed: another rollout has the node now, or something removes it from the cluster. Ends: the other rollout's turn ends; if it failed
	// there, mend that first; the node is gone, or the taint that the message names.
	ReasonClaimed Reason = "Claimed"
	// ReasonClaimUnreadable: the claims on the node, or its record of evictions, can't be read, so no rollout may take it.
	// Ends: the annotation that the message names is corrected or removed: kubectl annotate node NODE moult.dev/claims-.
	ReasonClaimUnreadable Reason = "ClaimUnreadable"
	// ReasonClaimLost: the node changed while it was being claimed. The operator decides again at once. Ends: by itself,
	// at once; seen for long, something writes to the node all the time.
	ReasonClaimLost Reason = "ClaimLost"
	// ReasonJobRefused: the API server refuses the Job because of a quota, a policy or an invalid field; the message says
	// which. The operator retries with growing delays. Ends: the quota, policy or field of the message is corrected, or
	// the Plan is paused or deleted.
	ReasonJobRefused Reason = "JobRefused"
	// ReasonPaused: the rollout's strategy says paused. Ends: kubectl moult resume.
	ReasonPaused Reason = "Paused"
	// ReasonStrategyInvalid: the rollout's strategy can't be understood, so nothing is started. Ends: the field that the
	// message names is corrected.
	ReasonStrategyInvalid Reason = "StrategyInvalid"
	// ReasonHalted: more nodes have failed than the strategy allows, or a canary node, or every node of a later wave (without maxFailures any). Ends: failed nodes
	// are tried again by kubectl moult retry, the spec changes, or failed nodes opt out.
	ReasonHalted Reason = "Halted"
	// ReasonWavePending: the node is in a later wave, and the current one is not done. Ends: turns of the current wave
	// end; an empty canary needs a node.
	ReasonWavePending Reason = "WavePending"
	// ReasonWaveSoaking: the node is in a later wave, and the current one soaks. Ends: the soak is over; a node that
	// becomes unhealthy starts it again.
	ReasonWaveSoaking Reason = "WaveSoaking"
	// ReasonWaveUnhealthy: the node is in a later wave, and not all nodes of the current one are healthy. Ends: the node
	// that the message names is healthy.
	ReasonWaveUnhealthy Reason = "WaveUnhealthy"
	// ReasonWaitingForApproval: the node is in a later wave, and a person must approve the current one. Ends: kubectl
	// moult approve.
	ReasonWaitingForApproval Reason = "WaitingForApproval"
	// ReasonMaxConcurrent: as many nodes as the rollout allows are in a turn, or have failed and keep their slot. Ends: a
	// turn ends; failed nodes keep their slot unless the strategy has maxFailures.
	ReasonMaxConcurrent Reason = "MaxConcurrent"
)

// Why a daemon pod is not replaced.
const (
	// ReasonOnDelete: the strategy is OnDelete: people delete outdated pods. Ends: a person deletes the pod.
	ReasonOnDelete Reason = "OnDelete"
	// ReasonNodeUnfit: no new pod would be created on the node, so the old one stays. Ends: the node's labels or taints,
	// or the template, change.
	ReasonNodeUnfit Reason = "NodeUnfit"
	// ReasonNodeNotReady: the node is not ready, or is under maintenance. Ends: the node is ready, or gone; others go on.
	ReasonNodeNotReady Reason = "NodeNotReady"
	// ReasonSlowStart: as many pods are in creation as the slow start allows, or reconcileFrequency has not passed since
	// the last batch. Ends: pods become ready, or the clock.
	ReasonSlowStart Reason = "SlowStart"
)

// Why a host does not start an update that it has or may have.
const (
	// ReasonDetectOnly: the rollout only shows which hosts have an update. Ends: spec.hostUpdate.detectOnly or
	// spec.replacement.detectOnly is taken away.
	ReasonDetectOnly Reason = "DetectOnly"
	// ReasonVersionNotOffered: the host offers no update, or another version than the requested one. Ends: the host
	// offers the version; see the host's update settings, or leave version out.
	ReasonVersionNotOffered Reason = "VersionNotOffered"
	// ReasonReleaseTooYoung: the version has been known for less time than minimumAge. Ends: minimumAge is over; the
	// message says when.
	ReasonReleaseTooYoung Reason = "ReleaseTooYoung"
	// ReasonHostSilent: the host's agent has not reported whether there is an update; the message names the pending
	// request. Ends: the agent answers: does its pod run on the node?
	ReasonHostSilent Reason = "HostSilent"
	// ReasonHostError: the host's agent could not find out whether there is an update; the message comes from the agent.
	// Ends: the host's updater works again; the agent's log says more. It is asked again by itself.
	ReasonHostError Reason = "HostError"
	// ReasonHostGone: the node lost the label that names its host's interface during a turn. Ends: the label is back, or
	// the node is ready in another boot, or rebootTimeout.
	ReasonHostGone Reason = "HostGone"
)

// Why a machine that is, or may be, outdated is not replaced, or is not yet drained.
const (
	// ReasonMachineUnknown: several Nodes have the provider id of the node's machine, or the machine is in another turn. Ends: the Nodes that do not
	// exist any more are deleted, or the other turn ends.
	ReasonMachineUnknown Reason = "MachineUnknown"
	// ReasonMachineProtected: the machine has deletion protection in the cloud. Ends: the protection is removed in the
	// cloud, or the node opts out.
	ReasonMachineProtected Reason = "MachineProtected"
	// ReasonSurgeExhausted: the scale set already has as many extra machines as surge allows. Ends: a turn in the scale
	// set ends.
	ReasonSurgeExhausted Reason = "SurgeExhausted"
	// ReasonScaleSetFull: the scale set is at its maximum. Ends: the scale set's maximum is raised, or onFull is
	// DeleteFirst.
	ReasonScaleSetFull Reason = "ScaleSetFull"
	// ReasonScaleSetBusy: the cloud, or another client of it, is changing the scale set. Ends: the other change ends.
	ReasonScaleSetBusy Reason = "ScaleSetBusy"
	// ReasonScaleSetUnfit: the scale set would replace machines by itself, or can't be changed as needed; the message
	// says how. Ends: the scale set is changed as the message says; see the cloud's page.
	ReasonScaleSetUnfit Reason = "ScaleSetUnfit"
	// ReasonScaleSetNotFound: the cloud does not know the scale set. Ends: names, and subscription, region or project,
	// are right.
	ReasonScaleSetNotFound Reason = "ScaleSetNotFound"
	// ReasonCloudQuota: the cloud has no room or no quota for one more machine. Ends: the cloud has room or more quota,
	// or surge is 0.
	ReasonCloudQuota Reason = "CloudQuota"
	// ReasonCloudThrottled: the cloud rejects requests because there are too many; the operator waits. Ends: the clock; a
	// longer checkPeriod helps.
	ReasonCloudThrottled Reason = "CloudThrottled"
	// ReasonCloudDenied: the operator lacks a permission in the cloud, or its credentials are not accepted. Ends: the
	// operator gets the rights on the cloud's page.
	ReasonCloudDenied Reason = "CloudDenied"
	// ReasonCloudError: the cloud does not answer, or its answer can't be understood. Ends: the cloud answers; the
	// operator's log has more.
	ReasonCloudError Reason = "CloudError"
	// ReasonReplacementPending: the replacement machine is not ready yet. Ends: the replacement is ready: kubectl moult
	// status nr/NAME.
	ReasonReplacementPending Reason = "ReplacementPending"
	// ReasonEtcdUnhealthy: a member of etcd is not healthy or is a learner, or the quorum of etcd would be at risk. Ends:
	// the member that the message names is healthy.
	ReasonEtcdUnhealthy Reason = "EtcdUnhealthy"
)

// Why a NodeDisruptionBudget does not let a unit start.
const (
	// ReasonBudgetInvalid: a budget that selects the node, or might select it, is invalid. Ends: the field that the
	// message names is corrected, or the budget is deleted.
	ReasonBudgetInvalid Reason = "BudgetInvalid"
	// ReasonBudgetPaused: a budget is paused. Ends: kubectl moult resume ndb/NAME.
	ReasonBudgetPaused Reason = "BudgetPaused"
	// ReasonOutsideBudgetWindow: a budget's windows are closed now. Ends: the window opens; the message says when.
	ReasonOutsideBudgetWindow Reason = "OutsideBudgetWindow"
	// ReasonWorkloadsUnavailable: an evicted workload is not available again, or a workload has too few available pods.
	// Ends: the workload is available, scaled down or deleted. An evicted one counts for an hour after the turn.
	ReasonWorkloadsUnavailable Reason = "WorkloadsUnavailable"
	// ReasonPodsBlock: pods that the budget selects are running. Ends: the pods end.
	ReasonPodsBlock Reason = "PodsBlock"
	// ReasonAlertsActive: Prometheus has alerts. Ends: the alerts end; gates.alerts.allow names alerts that do not
	// matter.
	ReasonAlertsActive Reason = "AlertsActive"
	// ReasonAlertsUnreachable: Prometheus does not answer, its answer can't be understood, or the Secret with credentials
	// for it can't be used. Ends: Prometheus answers the operator's pod; the message says what is wrong; whenUnreachable:
	// Open goes on without.
	ReasonAlertsUnreachable Reason = "AlertsUnreachable"
	// ReasonBudgetExhausted: as many nodes are unavailable as a budget allows. Ends: a node of status.holders is
	// available again.
	ReasonBudgetExhausted Reason = "BudgetExhausted"
	// ReasonMaxDomains: there are unavailable nodes in as many domains as a budget allows, and the node is in another.
	// Ends: the last unavailable node of the other domain is available.
	ReasonMaxDomains Reason = "MaxDomains"
)

// Why a unit failed.
const (
	// ReasonJobFailed: the Job on the node failed; the message says how. Ends: a retry or a change; read the Job's log
	// first.
	ReasonJobFailed Reason = "JobFailed"
	// ReasonJobLost: the Job is gone and its result is unknown. It runs again only after a retry is requested. Ends: a
	// retry or a change; look on the node first how far the change came.
	ReasonJobLost Reason = "JobLost"
	// ReasonTurnTimeout: the turn took longer than the strategy allows. Ends: a retry or a change; raise
	// strategy.turnTimeout if turns may take longer.
	ReasonTurnTimeout Reason = "TurnTimeout"
	// ReasonDrainTimeout: the drain did not finish in time; the message lists what remains. Ends: a retry or a change;
	// the message names the PodDisruptionBudget or the pod that held the drain.
	ReasonDrainTimeout Reason = "DrainTimeout"
	// ReasonDrainRefused: the node has pods that the drain may not evict; the message names them. Ends: a retry or a
	// change; drain.force and drain.deleteEmptyDirData (of a Plan: deleteEmptydirData) allow more pods.
	ReasonDrainRefused Reason = "DrainRefused"
	// ReasonHostUpdateFailed: the host's agent reports that a step of the update failed; the message comes from the
	// agent. Ends: a retry or a change; the agent's log says more.
	ReasonHostUpdateFailed Reason = "HostUpdateFailed"
	// ReasonNotRebooted: the host was ordered to reboot, and its boot id is unchanged. Ends: a retry or a change; see
	// what keeps the host from rebooting.
	ReasonNotRebooted Reason = "NotRebooted"
	// ReasonVersionUnchanged: the host has rebooted, and does not run the target version. Ends: a retry or a change; see
	// why the host does not boot its update.
	ReasonVersionUnchanged Reason = "VersionUnchanged"
	// ReasonRebootTimeout: the host was ordered to reboot, and was not ready again in time. Ends: a retry, or the host
	// comes back as it should be; see the machine's console.
	ReasonRebootTimeout Reason = "RebootTimeout"
	// ReasonReplacementFailed: the replacement machine could not be created, or its node was not ready in time. Ends: a
	// retry or another image; keepFailedFor keeps the machine to look at it.
	ReasonReplacementFailed Reason = "ReplacementFailed"
	// ReasonDeleteFailed: the cloud did not delete the machine. Ends: a retry; see locks and protections in the cloud.
	ReasonDeleteFailed Reason = "DeleteFailed"
	// ReasonPodFailed: the new daemon pod can't start, or restarts again and again. Ends: the pod is available, or
	// another template comes.
	ReasonPodFailed Reason = "PodFailed"
)
