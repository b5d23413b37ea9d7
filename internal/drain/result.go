// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

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
	Priority int32
	// Owner is the pod's controller, or nil.
	Owner *metav1.OwnerReference
	State State
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
		Priority: priority(v.Pod),
		Owner:    metav1.GetControllerOfNoCopy(v.Pod),
		State:    s,
		Message:  message,
	}
}

// inOrder compares pods by their order of eviction.
func inOrder(a, b Outcome) int {
	return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.Pod.Namespace, b.Pod.Namespace), cmp.Compare(a.Pod.Name, b.Pod.Name))
}

// inWords says what a pod in a state does. The message of a pod that is Skipped or Refused says that itself.
var inWords = map[State]string{
	Waiting: "waits", Blocked: "is held", Failed: "can't be evicted", Evicted: "is still terminating", Terminating: "is still terminating", Gone: "is gone",
}

// String returns the outcome in one line.
func (o *Outcome) String() string {
	does := inWords[o.State]
	if o.Budget != "" {
		does += " by PodDisruptionBudget " + o.Budget
	}
	if does != "" && o.Message != "" {
		does += ": "
	}
	return "pod " + o.Pod.String() + " " + does + o.Message
}

// Result is the state of a drain after a pass.
type Result struct {
	// Pods is every pod of the node, in the order of eviction.
	Pods []Outcome
	// Attached names the PersistentVolumes that the drain waits for: those of the node that no staying pod uses. It is
	// empty while the drain waits for pods.
	Attached []string
	// TimedOut is the action after the timeout, and empty before. Halt and Skip still send dry runs, so that the result
	// names what blocks.
	TimedOut OnTimeout
	// forcesLater is true before the timeout of a drain that then deletes pods without evictions.
	forcesLater bool
	// Next is when another pass can have another result without a change of a pod. Zero: only after a change of a pod.
	Next time.Time
}

// record adds pods that are in this state without a request.
func (r *Result) record(verdicts []Verdict, s State, message string) {
	for i := range verdicts {
		r.Pods = append(r.Pods, outcomeOf(&verdicts[i], s, message))
	}
}

// Done reports whether nothing is left to wait for.
func (r *Result) Done() bool {
	return len(r.Attached) == 0 && !slices.ContainsFunc(r.Pods, func(o Outcome) bool { return o.State != Skipped && o.State != Gone })
}

// Stuck reports whether the drain is not done and another pass can't advance it: the options refuse a pod, it timed out, or
// the API forbids all remaining evictions, and no timeout will delete those pods.
func (r *Result) Stuck() bool {
	if r.Done() {
		return false
	}
	if r.TimedOut.ended() || len(r.In(Refused)) > 0 {
		return true
	}
	return !r.forcesLater && len(r.Attached) == 0 && len(r.In(Evicted, Terminating, Blocked)) == 0 &&
		!slices.ContainsFunc(r.In(Failed), func(o Outcome) bool { return IsTransient(o.Err) })
}

// In returns the pods in any of these states.
func (r *Result) In(states ...State) []Outcome {
	return slices.DeleteFunc(slices.Clone(r.Pods), func(o Outcome) bool { return !slices.Contains(states, o.State) })
}

// maxNamed is how many volumes Left names.
const maxNamed = 5

// Left describes in one line what remains on the node: the number of pods, the first one that is refused, blocked or
// failed, or after a timeout any other, and how many more are. If no pod remains, it names the volumes. Equal states give equal texts.
func (r *Result) Left() string {
	left := len(r.In(Refused, Waiting, Blocked, Failed, Evicted, Terminating))
	if left == 0 && len(r.Attached) > 0 {
		named := r.Attached[:min(len(r.Attached), maxNamed)]
		text := "no pods left; volumes still attached: " + strings.Join(named, ", ")
		if more := len(r.Attached) - len(named); more > 0 {
			text += fmt.Sprintf(" and %d more", more)
		}
		return text
	}
	text := fmt.Sprintf("%d pods left", left)
	if left == 1 {
		text = "1 pod left"
	}
	held := r.In(Refused, Blocked, Failed)
	if len(held) == 0 && r.TimedOut != "" {
		held = r.In(Terminating, Evicted, Waiting)
	}
	if len(held) > 0 {
		text += "; " + held[0].String()
		if more := len(held) - 1; more > 0 {
			text += fmt.Sprintf(" (and %d more)", more)
		}
	}
	return text
}
