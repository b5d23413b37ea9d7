// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// UnitState is the state of a unit: one node's part in one rollout.
//
//	Outdated ──claim──▶ Updating ──▶ Soaking ──release──▶ Updated
//	    ▲                  │
//	    └──────retry─── Failed
//
// +kubebuilder:validation:Enum=Outdated;Updating;Soaking;Updated;Failed
type UnitState string

// The states of a unit.
const (
	UnitOutdated UnitState = "Outdated"
	UnitUpdating UnitState = "Updating"
	UnitSoaking  UnitState = "Soaking"
	UnitUpdated  UnitState = "Updated"
	UnitFailed   UnitState = "Failed"
)

// Phase is the progress of a turn while its unit is Updating or Soaking.
type Phase string

// The phases of a turn, in order. A turn skips those that its rollout does not need.
const (
	// PhaseClaimed: the node is claimed, and nothing runs on it yet.
	PhaseClaimed Phase = "Claimed"
	// PhaseStarting: the change is ordered, and its pod is not running yet.
	PhaseStarting Phase = "Starting"
	// PhasePreparing: the prepare step runs; the node still serves.
	PhasePreparing Phase = "Preparing"
	// PhaseDraining: the node is being cordoned, or its pods are being evicted.
	PhaseDraining Phase = "Draining"
	// PhaseChanging: the change itself runs.
	PhaseChanging Phase = "Changing"
	// PhaseReplacing: the running change is being stopped, because the rollout changed during the turn.
	PhaseReplacing Phase = "Replacing"
	// PhaseVerifying: the change succeeded, and the node is not healthy yet.
	PhaseVerifying Phase = "Verifying"
	// PhaseSoaking: the change succeeded, and the node keeps its slot for a while.
	PhaseSoaking Phase = "Soaking"
)

// MaxListedUnits bounds each list of units in a status, so that a status stays small in a large cluster.
const MaxListedUnits = 20

// UnitCounts counts a rollout's units by state. Total is the sum of the others.
type UnitCounts struct {
	// total is how many nodes the rollout selects, without those that opted out.
	// +required
	Total int32 `json:"total"`
	// updated is how many have the desired revision.
	// +required
	Updated int32 `json:"updated"`
	// updating is how many are in a turn, soaking ones included.
	// +required
	Updating int32 `json:"updating"`
	// failed is how many failed and wait for a retry or for a change of the rollout.
	// +required
	Failed int32 `json:"failed"`
	// waiting is how many are outdated and not in a turn.
	// +required
	Waiting int32 `json:"waiting"`
}

// UnitStatus is the state of one node in a rollout.
type UnitStatus struct {
	// node is the node's name.
	// +required
	Node string `json:"node"`
	// phase is the progress of its turn; empty when it is not in a turn.
	// +optional
	Phase Phase `json:"phase,omitempty"`
	// reason says in one word why it waits or failed.
	// +optional
	Reason Reason `json:"reason,omitempty"`
	// message says the same to people.
	// +optional
	Message string `json:"message,omitempty"`
	// since is when it entered this phase, or failed.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
}
