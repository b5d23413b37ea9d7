// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"errors"
	"strings"
)

// Error says why a drain is not done.
type Error struct {
	Node string
	// TimedOut is what governs when the drain's time is over, and empty before.
	TimedOut OnTimeout
	// Pods is what stands in the way.
	Pods []Outcome
	// Attached names the PersistentVolumes that do, when no pod does.
	Attached []string
}

// Error says it in one line, pod by pod and volume by volume.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("draining node " + e.Node)
	switch e.TimedOut {
	case HaltOnTimeout:
		b.WriteString(", the time is over")
	case SkipOnTimeout:
		b.WriteString(", the time is over and the node is skipped")
	}
	separator := ": "
	for _, line := range e.Lines() {
		b.WriteString(separator + line)
		separator = "; "
	}
	return b.String()
}

// Lines says of each pod and each volume how it stands in the way.
func (e *Error) Lines() []string {
	lines := make([]string, 0, len(e.Pods)+len(e.Attached))
	for i := range e.Pods {
		lines = append(lines, e.Pods[i].String())
	}
	for _, volume := range e.Attached {
		lines = append(lines, "volume "+volume+" is still attached")
	}
	return lines
}

// Unwrap gives what the API answered.
func (e *Error) Unwrap() []error {
	var errs []error
	for i := range e.Pods {
		if err := e.Pods[i].Err; err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// Err is why the drain is not done: nil when it is done, and when all that is left only takes its time to end.
func (r *Result) Err() error {
	var way []Outcome
	obstructed := r.TimedOut.ended()
	for i := range r.Pods {
		o := r.Pods[i]
		if !r.pending(o) {
			continue
		}
		switch o.State {
		case Refused, Blocked, Failed:
			obstructed = true
		}
		way = append(way, o)
	}
	if !obstructed || len(way)+len(r.Attached) == 0 {
		return nil
	}
	if refused := r.In(Refused); len(refused) > 0 {
		way = refused // The others wait for nothing else.
	}
	return &Error{Node: r.Node, TimedOut: r.TimedOut, Pods: way, Attached: r.Attached}
}

// IsRefused says that the drain's options do not allow to evict a pod.
func IsRefused(err error) bool { return is(err, Refused) }

// IsTimedOut says that the drain's time was over, and that it evicted nothing more: it halted, or the node is skipped.
func IsTimedOut(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.TimedOut.ended()
}

// IsSkipped says that the drain's time was over, and that the node is to be skipped.
func IsSkipped(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.TimedOut == SkipOnTimeout
}

func is(err error, s State) bool {
	var e *Error
	if !errors.As(err, &e) {
		return false
	}
	for i := range e.Pods {
		if e.Pods[i].State == s {
			return true
		}
	}
	return false
}
