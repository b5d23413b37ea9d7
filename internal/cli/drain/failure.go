// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"errors"
	"slices"
	"strings"

	"moult.dev/moult/internal/drain"
)

// failure is an error of the engine for people to read: a line for each pod, and the flag that would help.
type failure struct {
	text  string
	cause error
	code  int
}

// Error says it.
func (f *failure) Error() string { return f.text }

// Unwrap is the engine's error.
func (f *failure) Unwrap() error { return f.cause }

// ExitCode is what the process exits with.
func (f *failure) ExitCode() int { return f.code }

// help names the flag that gives the leave that a pod needs.
var help = map[drain.Reason]string{
	drain.ReasonDaemonSet:    " (use --ignore-daemonsets to leave it)",
	drain.ReasonLocalStorage: " (use --delete-emptydir-data to lose it)",
	drain.ReasonUnmanaged:    " (use --force to drain it all the same)",
}

// explain makes the engine's error one for people.
func (d *draining) explain(err error) error {
	var e *drain.Error
	if !errors.As(err, &e) {
		return err
	}
	heading := "draining node " + e.Node
	switch {
	case drain.IsSkipped(err):
		heading += ", its time is over, the node is skipped, and " + leftText(e.Pods)
	case drain.IsTimedOut(err):
		heading += ", its time is over and " + leftText(e.Pods)
	case drain.IsRefused(err):
		heading += ", nothing is touched because of these pods"
	default:
		heading += ", these pods can't go"
	}
	f := &failure{text: list(heading, e), cause: err, code: 1}
	if drain.IsTimedOut(err) {
		f.code = d.timedOutCode()
	}
	return f
}

func leftText(pods []drain.Outcome) string {
	if len(pods) == 0 {
		return "these volumes are still attached"
	}
	return "these pods are still there"
}

// timedOutCode is what the process exits with when the time is over.
func (d *draining) timedOutCode() int {
	switch {
	case !d.coded:
		return 1
	case d.options.OnTimeout == drain.SkipOnTimeout:
		return drain.ExitSkipped
	default:
		return drain.ExitTimedOut
	}
}

// join makes one error of why nodes were not drained and why some could not be released. Its exit code is that of the former if
// they agree, else 1: the controller releases a node that is not released here.
func join(failed, unreleased []error) error {
	all := errors.Join(append(slices.Clone(failed), unreleased...)...)
	if all == nil {
		return nil
	}
	code := 0
	for _, err := range failed {
		if err == nil {
			continue
		}
		next := 1
		if f, ok := errors.AsType[*failure](err); ok {
			next = f.code
		}
		if code != 0 && next != code {
			next = 1
		}
		code = next
	}
	return &failure{text: all.Error(), cause: all, code: max(code, 1)}
}

// interrupted says what is left on the node when the command is stopped.
func interrupted(p *progress) error {
	heading, last := "draining node "+p.name, p.last
	if last == nil {
		return errors.New(heading + ", it had not begun")
	}
	left := &drain.Error{
		Pods:     last.In(drain.Waiting, drain.Blocked, drain.Failed, drain.Evicted, drain.Terminating),
		Attached: last.Attached,
	}
	return errors.New(list(heading+", "+leftText(left.Pods), left))
}

// list says what is in the way: the pods, and then the volumes.
func list(heading string, e *drain.Error) string {
	var b strings.Builder
	b.WriteString(heading + ":")
	for i, line := range e.Lines() {
		b.WriteString("\n  " + line)
		if i < len(e.Pods) && e.Pods[i].State == drain.Refused {
			b.WriteString(help[e.Pods[i].Reason])
		}
	}
	return b.String()
}
