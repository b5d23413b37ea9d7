// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"slices"
	"time"
)

// Result explains how a drain stands after a pass.
type Result struct {
	Node string
	// Pods is every pod of the node, in the order in which they go.
	Pods []Outcome
	// Attached names the PersistentVolumes that are waited for: those of the node that no pod uses that stays there. It is
	// empty while there are pods to wait for.
	Attached []string
	// TimedOut is empty until the drain's time is over, and then what governs. Halt and Skip still ask, in dry run, so that
	// the result goes on saying what blocks.
	TimedOut OnTimeout
	// DryRun says that the options asked to judge evictions and to do none.
	DryRun bool
	// Next is when another pass can say something new though no pod has changed. Zero: only when a pod changes.
	Next time.Time
}

// Done says that nothing is left to wait for.
func (r *Result) Done() bool {
	return len(r.Attached) == 0 && !slices.ContainsFunc(r.Pods, r.pending)
}

// Stuck says that the drain is not done, and that passing again with these options does not bring it further: they
// refuse a pod, its time is over, or the API forbids all that is left.
func (r *Result) Stuck() bool {
	if r.Done() {
		return false
	}
	if r.TimedOut.ended() || r.DryRun || len(r.In(Refused)) > 0 {
		return true
	}
	return len(r.Attached) == 0 && !slices.ContainsFunc(r.Pods, moving)
}

// In lists the pods in any of these states.
func (r *Result) In(states ...State) []Outcome {
	var in []Outcome
	for i := range r.Pods {
		if slices.Contains(states, r.Pods[i].State) {
			in = append(in, r.Pods[i])
		}
	}
	return in
}

// pending says that the drain is not done while the pod stands so.
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

// moving says that the pod may stand otherwise in a later pass, without anybody's doing.
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
