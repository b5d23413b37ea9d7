// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"errors"
	"strings"
)

// Error says why a drain is not done.
type Error struct {
	Node     string
	TimedOut OnTimeout
	// Pods is what stands in the way.
	Pods []Outcome
}

// Error says it in one line, pod by pod.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("draining node " + e.Node)
	if e.TimedOut == HaltOnTimeout {
		b.WriteString(", the time is over")
	}
	separator := ": "
	for i := range e.Pods {
		b.WriteString(separator + e.Pods[i].String())
		separator = "; "
	}
	return b.String()
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
	obstructed := r.TimedOut == HaltOnTimeout
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
	if !obstructed || len(way) == 0 {
		return nil
	}
	if refused := r.In(Refused); len(refused) > 0 {
		way = refused // The others wait for nothing else.
	}
	return &Error{Node: r.Node, TimedOut: r.TimedOut, Pods: way}
}

// IsRefused says that the drain's options do not allow to evict a pod.
func IsRefused(err error) bool { return is(err, Refused) }

// IsBlocked says that a budget holds a pod, for now.
func IsBlocked(err error) bool { return is(err, Blocked) }

// IsTimedOut says that the drain's time was over, and that it halted.
func IsTimedOut(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.TimedOut == HaltOnTimeout
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
