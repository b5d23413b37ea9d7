// SPDX-License-Identifier: Apache-2.0

package drain

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// State is how a pod stands after a pass.
type State string

const (
	// Skipped: the pod stays on the node, and nobody waits for it.
	Skipped State = "Skipped"
	// Refused: the pod may not go with these options, and so no pod goes.
	Refused State = "Refused"
	// Waiting: the pod was not asked to go in this pass.
	Waiting State = "Waiting"
	// Blocked: a budget, or whoever else answers evictions with "too many requests", says not now.
	Blocked State = "Blocked"
	// Failed: the API said something else; Outcome.Err holds it.
	Failed State = "Failed"
	// Evicted: the pod was told to go in this pass.
	Evicted State = "Evicted"
	// Terminating: the pod was told to go before.
	Terminating State = "Terminating"
	// Gone: the pod went while the pass ran. In later passes it is not there at all.
	Gone State = "Gone"
)

// Outcome is how one pod stands, and why.
type Outcome struct {
	Pod      types.NamespacedName
	UID      types.UID
	Priority int32
	// Owner is the controller that made the pod, or nil.
	Owner *metav1.OwnerReference
	State State
	// Reason is Filter's, for pods that are skipped or refused.
	Reason Reason
	// Costs is what evicting the pod loses.
	Costs []Reason
	// Budget is the PodDisruptionBudget that blocks, as "namespace/name", where the API names one.
	Budget string
	// Message says why, in the words of whoever decided.
	Message string
	// Err is what the API answered to the eviction of a pod that is Blocked or Failed.
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

// String says it in one line.
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
