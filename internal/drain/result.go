// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"slices"
	"time"
)

// Result is the state of a drain after a pass.
type Result struct {
	Node string
	// Pods is every pod of the node, in the order of eviction.
	Pods []Outcome
	// Attached names the PersistentVolumes that the drain waits for: those of the node that no staying pod uses. It is
	// empty while the drain waits for pods.
	Attached []string
	// TimedOut is the action after the timeout, and empty before. Halt and Skip still send dry runs, so that the result
	// names what blocks.
	TimedOut OnTimeout
	// DryRun is true for a pass in dry run.
	DryRun bool
	// Next is when another pass can have another result without a change of a pod. Zero: only after a change of a pod.
	Next time.Time
}

// Done reports whether nothing is left to wait for.
func (r *Result) Done() bool {
	return len(r.Attached) == 0 && !slices.ContainsFunc(r.Pods, r.pending)
}

// Stuck reports whether the drain is not done and another pass can't advance it: the options refuse a pod, it timed out, or
// the API forbids all remaining evictions.
func (r *Result) Stuck() bool {
	if r.Done() {
		return false
	}
	if r.TimedOut.ended() || r.DryRun || len(r.In(Refused)) > 0 {
		return true
	}
	return len(r.Attached) == 0 && !slices.ContainsFunc(r.Pods, moving)
}

// In returns the pods in any of these states.
func (r *Result) In(states ...State) []Outcome {
	var in []Outcome
	for i := range r.Pods {
		if slices.Contains(states, r.Pods[i].State) {
			in = append(in, r.Pods[i])
		}
	}
	return in
}

// pending reports whether the drain waits for a pod in this state.
func (r *Result) pending(o Outcome) bool {
	switch o.State {
	case Skipped, Gone:
		return false
	case Evicted, Terminating:
		return !r.DryRun
	default:
		return true
	}
}

// moving reports whether the state of the pod may change without an action of a person.
func moving(o Outcome) bool {
	switch o.State {
	case Evicted, Terminating, Blocked:
		return true
	case Failed:
		return IsTransient(o.Err)
	default:
		return false
	}
}
