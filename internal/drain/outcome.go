// SPDX-License-Identifier: Apache-2.0

package drain

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// State is the state of a pod after a pass.
type State string

const (
	// Skipped: the pod stays on the node, and the drain does not wait for it.
	Skipped State = "Skipped"
	// Refused: the options do not allow the eviction, so no pod is evicted.
	Refused State = "Refused"
	// Waiting: the pod was not evicted in this pass.
	Waiting State = "Waiting"
	// Blocked: a budget or a webhook refuses the eviction for now.
	Blocked State = "Blocked"
	// Failed: the API returned another error; Outcome.Err holds it.
	Failed State = "Failed"
	// Evicted: the pod was evicted in this pass.
	Evicted State = "Evicted"
	// Terminating: the pod was evicted or deleted earlier.
	Terminating State = "Terminating"
	// Gone: the pod disappeared during the pass. Later passes do not list it.
	Gone State = "Gone"
)

// Outcome is the state of one pod, and why.
type Outcome struct {
	Pod      types.NamespacedName
	UID      types.UID
	Priority int32
	// Owner is the pod's controller, or nil.
	Owner *metav1.OwnerReference
	State State
	// Reason is Filter's reason, for skipped and refused pods.
	Reason Reason
	// Costs is what evicting the pod loses.
	Costs []Reason
	// Budget is the PodDisruptionBudget that blocks, as "namespace/name", if the API names one.
	Budget string
	// Message says why, in the words of Filter or of the API.
	Message string
	// Err is the API's error for a pod that is Blocked or Failed.
	Err error
}

func outcomeOf(v *Verdict, s State, message string) Outcome {
	return Outcome{
		Pod:      types.NamespacedName{Namespace: v.Pod.Namespace, Name: v.Pod.Name},
		UID:      v.Pod.UID,
		Priority: priority(v.Pod),
		Owner:    metav1.GetControllerOfNoCopy(v.Pod),
		State:    s,
		Reason:   v.Reason,
		Costs:    v.Costs,
		Message:  message,
	}
}

// String returns the outcome in one line.
func (o *Outcome) String() string {
	pod := "pod " + o.Pod.String()
	switch o.State {
	case Blocked:
		if o.Budget != "" {
			return pod + " is held by PodDisruptionBudget " + o.Budget + ": " + o.Message
		}
		return pod + " is held: " + o.Message
	case Failed:
		return pod + " can't be evicted: " + o.Message
	case Waiting:
		return pod + " waits: " + o.Message
	case Evicted, Terminating:
		if o.Message == "" {
			return pod + " is still terminating"
		}
		return pod + " is still terminating: " + o.Message
	case Gone:
		return pod + " is gone"
	default: // Skipped, Refused
		return pod + " " + o.Message
	}
}
