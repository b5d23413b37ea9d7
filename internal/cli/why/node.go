// SPDX-License-Identifier: Apache-2.0

package why

import (
	"cmp"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cli/text"
	"moult.dev/moult/internal/view"
)

// since is " for 3m: message", without what is not known.
func since(t *metav1.Time, message string, now time.Time) text.Piece {
	return text.Plain.Of(text.For(t, now) + colon(message))
}

func colon(message string) string {
	if message == "" {
		return ""
	}
	return ": " + message
}

func drawNode(l *text.Lines, n *view.Facts, now time.Time) {
	state, message := text.Green.Of("  ready"), ""
	if !n.Ready {
		state, message = text.Red.Of("  not ready"), n.ReadyMessage
	}
	l.Add(text.Plain.Of("Node "), text.Bold.Of(n.Name), state, since(n.ReadySince, message, now))
	if n.Deleting != nil {
		l.Add(text.Red.Of("  being deleted"), since(n.Deleting, "", now))
	}
	switch {
	case n.Unschedulable && n.CordonedBy == "":
		l.Add(text.Yellow.Of("  cordoned"), text.Plain.Of(" by a person or another tool: it stays cordoned after a turn, and counts as unavailable"))
	case n.Unschedulable:
		l.Add(text.Yellow.Of("  cordoned"), text.Plain.Of(" by "+n.CordonedBy))
	}
	if n.Excluded {
		l.Add(text.Plain.Of("  kept from external load balancers by " + cmp.Or(n.ExcludedBy, "a person or another tool")))
	}
	if n.ClaimError != "" {
		l.Add(text.Red.Of("  claims unreadable: "+n.ClaimError), text.Plain.Of("; no rollout may take the node until a person mends or removes the annotation"))
	}
	for i := range n.Claims {
		drawClaim(l, &n.Claims[i], now)
	}
	if n.Host != nil {
		drawHost(l, n.Host, now)
	}
	for i := range n.Machines {
		drawMachine(l, &n.Machines[i], now)
	}
	if len(n.Evicted) > 0 {
		l.Add(text.Yellow.Of("  evicted"), text.Plain.Of(" and not known to be available again: "+strings.Join(n.Evicted, ", ")))
	}
	if n.EvictedError != "" {
		l.Add(text.Red.Of("  what was evicted is unreadable: " + n.EvictedError))
	}
	for i := range n.Conditions {
		c := &n.Conditions[i]
		l.Add(text.Yellow.Of("  condition "+c.Type+" is "+c.Status), since(c.Since, c.Message, now))
	}
	if len(n.Taints) > 0 {
		l.Add(text.Plain.Of("  tainted " + strings.Join(n.Taints, ", ")))
	}
}

func drawClaim(l *text.Lines, c *v1alpha1.Claim, now time.Time) {
	if c.Skipped() {
		l.Add(text.Plain.Format("  skipped by %s %s ago: the claim records that, and blocks nothing", c.Rollout, text.Since(&c.Failed.Time, now)))
		return
	}
	by := " by " + c.Rollout + text.For(&c.Since, now)
	if c.Shared {
		by += ", shared"
	}
	if c.Failed != nil {
		by += "; its turn failed " + text.Since(&c.Failed.Time, now) + " ago, and the node waits for a retry"
	}
	l.Add(text.Yellow.Of("  claimed"), text.Plain.Of(by))
}

var hostStyles = map[v1alpha1.HostState]text.Style{
	v1alpha1.HostStateBusy: text.Yellow, v1alpha1.HostStateError: text.Red, v1alpha1.HostStateReady: text.Green,
}

// drawHost writes what the host runs and has to offer, and what it has to do and does.
func drawHost(l *text.Lines, h *view.Host, now time.Time) {
	runs := ""
	switch {
	case h.Version != "" && h.Previous != "" && h.Previous != h.Version:
		runs = "runs " + h.Version + " (before: " + h.Previous + "), "
	case h.Version != "":
		runs = "runs " + h.Version + ", "
	}
	offers := "has not said whether there is an update"
	switch {
	case h.Update == v1alpha1.HostUpdateTrue && h.Target != "":
		offers = "has " + h.Target + " to offer"
	case h.Update == v1alpha1.HostUpdateTrue:
		offers = "has an update, or needs a reboot"
	case h.Update == v1alpha1.HostUpdateFalse:
		offers = "has no update"
	}
	if h.Checked != nil {
		offers += ", checked " + text.Since(h.Checked, now) + " ago"
	}
	l.Add(text.Plain.Of("  host " + runs + offers + "; interface " + h.Interface + " (" + h.Label + ")"))

	action := func(a v1alpha1.HostAction) text.Piece { return text.Bold.Of(string(cmp.Or(a, "none"))) }
	line := text.Line{
		text.Plain.Of("  host wanted "), action(h.Wanted), text.Plain.Of(", active "), action(h.Active), text.Plain.Of(", state "),
		hostStyles[h.State].Of(string(cmp.Or(h.State, "none"))),
	}
	if h.Asked != "" {
		line = append(line, text.Plain.Of(", target "+h.Asked))
	}
	if h.Attempts > 0 {
		line = append(line, text.Plain.Format(", attempt %d", h.Attempts))
	}
	l.Add(line...)
	if h.Error != "" {
		l.Add(text.Red.Of("  host error: " + h.Error))
	}
}

// drawMachine writes which part the node's machine has in a turn.
func drawMachine(l *text.Lines, m *view.Machine, now time.Time) {
	machine, what := m.Machine, "will be replaced"
	switch {
	case m.Replaces && m.Node != "":
		machine, what = m.Replacement, "takes the place of that of node "+m.Node
	case m.Replaces:
		machine, what = m.Replacement, "has taken the place of "+cmp.Or(m.Machine, "another")
	case m.ReplacementNode != "":
		what = "is replaced by that of node " + m.ReplacementNode
	case m.Replacement != "":
		what = "is replaced by machine " + m.Replacement + ", which has no node yet"
	}
	line := text.Line{
		text.Plain.Format("  machine %s of scale set %s %s: ", cmp.Or(machine, "unknown"), m.ScaleSet, what),
		text.Yellow.Of(string(m.Phase)), text.Plain.Of(text.For(&m.PhaseSince, now) + " (NodeRollout/" + m.Rollout + ")"),
	}
	if m.Failed != nil {
		line = append(line, text.Red.Of("  "+string(m.Failed.Reason)))
	}
	l.Add(line...)
}
