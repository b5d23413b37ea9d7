// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"errors"
	"strings"

	"moult.dev/moult/internal/drain"
)

// failure is an error of the engine's for people to read: a line for each pod, and the flag that would help.
type failure struct {
	text  string
	cause error
}

// Error says it.
func (f *failure) Error() string { return f.text }

// Unwrap is the engine's error.
func (f *failure) Unwrap() error { return f.cause }

// help names the flag that gives the leave that a pod needs.
var help = map[drain.Reason]string{
	drain.ReasonDaemonSet:    " (use --ignore-daemonsets to leave it)",
	drain.ReasonLocalStorage: " (use --delete-emptydir-data to lose it)",
	drain.ReasonUnmanaged:    " (use --force to drain it all the same)",
}

// explain makes the engine's error one for people.
func explain(err error) error {
	var e *drain.Error
	if !errors.As(err, &e) {
		return err
	}
	heading := "draining node " + e.Node
	switch {
	case drain.IsTimedOut(err):
		heading += ", its time is over and these pods are still there"
	case drain.IsRefused(err):
		heading += ", nothing is touched because of these pods"
	default:
		heading += ", these pods can't go"
	}
	return &failure{text: list(heading, e.Pods), cause: err}
}

// interrupted says what is left on the node when the command is stopped.
func interrupted(node string, last *drain.Result) error {
	heading := "draining node " + node
	if last == nil {
		return errors.New(heading + ", it had not begun")
	}
	left := last.In(drain.Waiting, drain.Blocked, drain.Failed, drain.Evicted, drain.Terminating)
	return errors.New(list(heading+", it stays cordoned and these pods are still there", left))
}

func list(heading string, pods []drain.Outcome) string {
	var b strings.Builder
	b.WriteString(heading + ":")
	for i := range pods {
		b.WriteString("\n  " + pods[i].String())
		if pods[i].State == drain.Refused {
			b.WriteString(help[pods[i].Reason])
		}
	}
	return b.String()
}
