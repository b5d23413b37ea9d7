// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// State is what an ExtendedDaemonSet is doing, in status.state.
type State string

// The states of an ExtendedDaemonSet.
const (
	StateRunning             State = "Running"
	StateRollingUpdatePaused State = "RollingUpdate Paused"
	StateRolloutFrozen       State = "Rollout frozen"
	StateCanary              State = "Canary"
	StateCanaryPaused        State = "Canary Paused"
	StateCanaryFailed        State = "Canary Failed"
)

// ReplicaSetStatus is the role of an ExtendedDaemonSetReplicaSet, in status.status.
type ReplicaSetStatus string

// The roles of an ExtendedDaemonSetReplicaSet.
const (
	ReplicaSetActive       ReplicaSetStatus = "active"
	ReplicaSetCanary       ReplicaSetStatus = "canary"
	ReplicaSetCanaryFailed ReplicaSetStatus = "canary-failed"
	ReplicaSetUnknown      ReplicaSetStatus = "unknown"
)

// StatusReason is why a canary is paused or failed, or why a pod does not start: one of these, or the kubelet's reason why a container
// ended or can't start.
type StatusReason string

// Why a canary is paused or failed.
const (
	StatusReasonRestartsTimeoutExceeded  StatusReason = "RestartsTimeoutExceeded"
	StatusReasonTimeoutExceeded          StatusReason = "TimeoutExceeded"
	StatusReasonSlowStartTimeoutExceeded StatusReason = "SlowStartTimeoutExceeded"
	StatusReasonStartError               StatusReason = "StartError"
	StatusReasonUnknown                  StatusReason = "Unknown"
)
