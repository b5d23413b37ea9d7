// SPDX-License-Identifier: Apache-2.0

package v1

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Condition types. The first three are system-upgrade-controller's, the others follow the kstatus convention.
const (
	ConditionValidated      = "Validated"
	ConditionLatestResolved = "LatestResolved"
	ConditionComplete       = "Complete"
	ConditionReady          = "Ready"
	ConditionReconciling    = "Reconciling"
	ConditionStalled        = "Stalled"
)

// Condition reasons, the same as in system-upgrade-controller.
const (
	ReasonError       = "Error"
	ReasonPlanIsValid = "PlanIsValid"
	ReasonVersion     = "Version"
	ReasonChannel     = "Channel"
	ReasonNotReady    = "NotReady"
	ReasonResolved    = "Resolved"
	ReasonSyncJob     = "SyncJob"
	ReasonWaiting     = "Waiting"
	ReasonJobFailed   = "JobFailed"
	ReasonComplete    = "Complete"
)

// Condition is one aspect of a Plan's state. Times are plain strings, as in system-upgrade-controller, so that stored
// objects stay readable.
type Condition struct {
	// Type of the condition.
	Type string `json:"type"`
	// Status of the condition, one of True, False, Unknown.
	Status metav1.ConditionStatus `json:"status"`
	// ObservedGeneration is the metadata.generation that the condition was set for.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// LastUpdateTime is when status, reason or message last changed (RFC 3339).
	// +optional
	LastUpdateTime string `json:"lastUpdateTime,omitempty"`
	// LastTransitionTime is when status last changed (RFC 3339).
	// +optional
	LastTransitionTime string `json:"lastTransitionTime,omitempty"`
	// Reason for the last transition, one word.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Message says the same to people.
	// +optional
	Message string `json:"message,omitempty"`
}

// Condition returns the condition of this type, or nil.
func (s *PlanStatus) Condition(conditionType string) *Condition {
	for i := range s.Conditions {
		if s.Conditions[i].Type == conditionType {
			return &s.Conditions[i]
		}
	}
	return nil
}

// SetCondition sets a condition. Its times change only with the fields that they belong to.
func (s *PlanStatus) SetCondition(c Condition, now time.Time) {
	stamp := now.UTC().Format(time.RFC3339)
	old := s.Condition(c.Type)
	if old == nil {
		s.Conditions = append(s.Conditions, Condition{Type: c.Type})
		old = &s.Conditions[len(s.Conditions)-1]
	}
	c.LastUpdateTime, c.LastTransitionTime = old.LastUpdateTime, old.LastTransitionTime
	if c.Status != old.Status {
		c.LastTransitionTime = stamp
	}
	if c.Status != old.Status || c.Reason != old.Reason || c.Message != old.Message || c.LastUpdateTime == "" {
		c.LastUpdateTime = stamp
	}
	*old = c
}
