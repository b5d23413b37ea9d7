// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Condition types of an ExtendedDaemonSet. The last three follow the kstatus convention.
const (
	ConditionCanaryPaused   = "Canary-Paused"
	ConditionCanaryFailed   = "Canary-Failed"
	ConditionReconcileError = "ReconcileError"
	ConditionReady          = "Ready"
	ConditionReconciling    = "Reconciling"
	ConditionStalled        = "Stalled"
)

// Condition types of an ExtendedDaemonSetReplicaSet; Canary-Paused, Canary-Failed and ReconcileError are others.
const (
	ConditionActive              = "Active"
	ConditionRollingUpdatePaused = "RollingUpdatePaused"
	ConditionRolloutFrozen       = "RolloutFrozen"
	ConditionCanary              = "Canary"
	ConditionUnschedule          = "Unschedule"
	ConditionPodsCleanupDone     = "PodsCleanupDone"
	ConditionPodCreation         = "PodCreation"
	ConditionPodDeletion         = "PodDeletion"
	ConditionPodRestarting       = "PodRestarting"
	ConditionPodCannotStart      = "PodCannotStart"
)

// Reasons of conditions.
const (
	// ReasonInvalidSpec is that of Stalled on an ExtendedDaemonSet with an invalid spec.
	ReasonInvalidSpec = "InvalidSpec"
	// ReasonCanaryFailed is that of Canary-Failed on an ExtendedDaemonSet.
	ReasonCanaryFailed = "CanaryFailed"
	// ReasonManuallyFailed is what `kubectl eds canary fail` writes.
	ReasonManuallyFailed = "Manually failed"
	// ReasonReset is what `kubectl eds canary reset` writes.
	ReasonReset = "Reset"
)

// Condition is one aspect of the state of an ExtendedDaemonSet or an ExtendedDaemonSetReplicaSet.
type Condition struct {
	// Type of the condition.
	Type string `json:"type"`
	// Status of the condition, one of True, False, Unknown.
	Status metav1.ConditionStatus `json:"status"`
	// LastTransitionTime is when the status last changed.
	// +optional
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitempty,omitzero"`
	// LastUpdateTime is when any field of the condition last changed, or when its event last happened.
	// +optional
	LastUpdateTime metav1.Time `json:"lastUpdateTime,omitempty,omitzero"`
	// Reason of the last change in one word.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Message says the same to people.
	// +optional
	Message string `json:"message,omitempty"`
}

// FindCondition returns the condition of a type, or nil.
func FindCondition(conditions []Condition, kind string) *Condition {
	for i := range conditions {
		if conditions[i].Type == kind {
			return &conditions[i]
		}
	}
	return nil
}

// TrueCondition returns the condition of a type if it is True, or nil.
func TrueCondition(conditions []Condition, kind string) *Condition {
	c := FindCondition(conditions, kind)
	if c == nil || c.Status != metav1.ConditionTrue {
		return nil
	}
	return c
}

// IsConditionTrue reports whether there is a condition of a type, and it is True.
func IsConditionTrue(conditions []Condition, kind string) bool {
	return TrueCondition(conditions, kind) != nil
}
