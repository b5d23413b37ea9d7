// SPDX-License-Identifier: Apache-2.0

package moult

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cli/flags"
	"moult.dev/moult/internal/cli/source"
	"moult.dev/moult/internal/cli/text"
	"moult.dev/moult/internal/view"
)

func newWhy(c command) *cobra.Command {
	var output flags.Output
	cmd := help("why NODE",
		`Say why a node is changed, or is not: every check of every rollout, and what holds the node.
While the node waits, its place in the order and every check follow: ✓ passed, ✗ not passed, with the reason.`,
		`  kubectl moult why worker-7
  kubectl moult why worker-7 -o json | jq '.rollouts[].checks[]? | select(.reason)'`)
	output.Add(cmd, flags.Wide, flags.JSON, flags.YAML)
	return source.Verb(c.cluster, cmd, []*source.Kind{source.Node}, func(ctx context.Context, src *source.Source, node source.Target) error {
		return c.why(ctx, src, node, &output)
	})
}

func (c *command) why(ctx context.Context, src *source.Source, node source.Target, output *flags.Output) error {
	src.Own, src.Namespace = src.Namespace, "" // Rollouts of any namespace may select the node.
	now := c.clock.Now()
	cluster, err := src.ReadNamed(ctx, source.Target{}, node.Name, nil, now)
	if err == nil && cluster.Nodes() == nil {
		err = source.ErrNoNodes
	}
	if err != nil {
		return err
	}
	w, ok := cluster.Why(node.Name)
	if !ok {
		return fmt.Errorf("there is no node %q", node.Name)
	}
	c.note(src)
	if output.Structured() {
		return output.PrintAs(c.Out, "NodeExplanation", &w)
	}
	return c.print(explain(&w, now))
}

// explain writes the node, its rollouts and its budgets.
func explain(w *view.Why, now time.Time) text.Lines {
	var l text.Lines
	drawNode(&l, &w.Node, now)
	for i := range w.Rollouts {
		l.Add()
		drawPart(&l, w, &w.Rollouts[i], now)
	}
	if len(w.Rollouts) == 0 {
		l.Add()
		drawOthers(&l, w)
	}
	if len(w.Budgets) > 0 {
		l.Add()
		l = append(l, drawBudgets(w.Budgets, now, true)...)
	}
	return l
}

// drawPart writes the node's part in one rollout.
func drawPart(l *text.Lines, w *view.Why, p *view.Part, now time.Time) {
	r := &p.Rollout
	l.Add(append(title(r, r.Version), unitState(p), since(p.Unit.Since, "", now))...)
	l.AddWhen(p.Unit.Message != "" && len(p.Checks) == 0 && len(p.Pods) == 0, text.Plain.Of("  "+p.Unit.Message)) // Else these lines say it.
	for i := range p.Pods {
		drawPod(l, &p.Pods[i], r.Version, now)
	}
	drawCanary(l, p)
	unexplained := len(p.Checks) == 0 && (p.Unit.State == v1alpha1.UnitOutdated || p.Unit.State == view.Untold && !p.Replaces) && !p.OptedOut
	if unexplained || r.State == view.Pending || r.State == view.Stalled {
		l.Add(stateStyles[r.State].Of("  the rollout is "+string(r.State)), since(r.Since, r.Message, now))
	}
	if !p.OptedOut {
		drawPlace(l, p)
		drawChecks(l, p)
	}
	for _, advice := range advise(w, p, now) {
		l.Add(text.Dim.Of("  → " + advice))
	}
}

// unitState is the node's state in a rollout, in a few words.
func unitState(p *view.Part) text.Piece {
	u := &p.Unit
	state := "  " + string(u.State)
	if u.Canary && (u.InTurn() || u.State == v1alpha1.UnitUpdated) {
		state = "  canary, " + string(u.State)
	}
	switch {
	case p.OptedOut && !u.Canary:
		return text.Plain.Of("  opted out")
	case u.State == v1alpha1.UnitFailed:
		return text.Red.Of(state + ": " + string(u.Reason) + text.When(u.Skipped, ", skipped"))
	case u.InTurn():
		return text.Yellow.Of(state + ": " + string(u.Phase))
	case u.State == v1alpha1.UnitUpdated:
		return text.Green.Of(state)
	case p.Place > 0 && !p.Waits():
		return text.Yellow.Of(state + ", next")
	}
	return text.Plain.Of(state)
}

// few bounds how many of the nodes before it are named.
const few = 3

// drawPlace writes the unit's place in the order.
func drawPlace(l *text.Lines, p *view.Part) {
	if p.Place == 0 {
		return
	}
	l.Add(
		text.Plain.Format("  number %d of %d that wait for a start", p.Place, p.Asking), text.Plain.When(p.Wave != "", ", in wave %s", p.Wave),
		text.Plain.When(len(p.Ahead) > 0, "; before it %s", text.Some(few, p.Ahead, ", ")),
	)
	l.AddWhen(p.Note != "", text.Dim.Of("  ("+p.Note+")"))
}

// drawChecks writes every check in order. Passed checks share one line.
func drawChecks(l *text.Lines, p *view.Part) {
	var passed []string
	for i, c := range p.Checks {
		if c.Reason == "" {
			passed = append(passed, c.Name)
		}
		if last := i == len(p.Checks)-1; len(passed) > 0 && (last || c.Reason != "") {
			l.Add(text.Green.Of("  ✓ "), text.Plain.Of(strings.Join(passed, ", ")))
			passed = nil
		}
		l.AddWhen(c.Reason != "", text.Red.Of("  ✗ "), text.Plain.Of(c.Name+": "), text.Red.Of(string(c.Reason)), text.Plain.Of(colon(c.Message)))
	}
}

// drawPod writes the state of a daemon's pod.
func drawPod(l *text.Lines, o *view.Pod, version string, now time.Time) {
	line := text.Line{text.Plain.Of("  pod " + o.Name), text.Plain.When(o.Revision != "" && o.Revision != version, " of revision %s", o.Revision)}
	switch {
	case o.Deleted != nil:
		line = append(line, text.Yellow.Of("  being deleted"), since(o.Deleted, "", now))
	case o.Ready:
		line = append(line, text.Green.Of("  ready"), since(o.Since, "", now))
	default:
		line = append(line, text.Red.Of("  not ready"), text.Plain.Of(", made "+text.Since(o.Since, now)+" ago"))
	}
	l.Add(append(line, text.Plain.When(o.Restarts > 0, ", %d restarts", o.Restarts), text.Plain.Of(colon(o.Message)))...)
}

// drawCanary writes the state of the canary that keeps the node waiting, or runs on it.
func drawCanary(l *text.Lines, p *view.Part) {
	c, w := p.Rollout.Canary, p.Rollout.Wave
	isPaused := func(c view.Check) bool { return c.Reason == v1alpha1.ReasonPaused }
	switch {
	case c == nil:
	case c.State == view.CanaryPaused && !slices.ContainsFunc(p.Checks, isPaused): // Else it follows below.
		l.Add(text.Yellow.Of("  the canary of "+c.Revision+" is paused"), text.Plain.Of(colon(string(c.Reason))+colon(c.Message)))
	case c.State == view.CanaryProgressing && w != nil && w.Message != "" && p.Unit.Canary:
		l.Add(text.Plain.Of("  " + w.Message))
	}
}

// drawOthers says why no rollout selects the node.
func drawOthers(l *text.Lines, w *view.Why) {
	l.AddWhen(len(w.Others) == 0, text.Plain.Of("There is no rollout."))
	l.AddWhen(len(w.Others) > 0, text.Plain.Of("No rollout selects this node:"))
	for _, o := range w.Others {
		l.Add(text.Plain.Of("  "+o.Kind+" "), text.Bold.Of(o.FullName()), text.Plain.Of(": "+o.Message))
	}
}

// since is " for 3m: message", without unknown parts.
func since(t *metav1.Time, message string, now time.Time) text.Piece {
	return text.Plain.Of(text.For(t, now) + colon(message))
}

func colon(message string) string { return text.When(message != "", ": %s", message) }

func drawNode(l *text.Lines, n *view.Facts, now time.Time) {
	state, message := text.Green.Of("  ready"), ""
	if !n.Ready {
		state, message = text.Red.Of("  not ready"), n.ReadyMessage
	}
	l.Add(text.Plain.Of("Node "), text.Bold.Of(n.Name), state, since(n.ReadySince, message, now))
	l.AddWhen(n.Deleting != nil, text.Red.Of("  being deleted"), since(n.Deleting, "", now))
	const another = "a person or another tool"
	by := cmp.Or(n.CordonedBy, another+": it stays cordoned after a turn, and counts as unavailable")
	l.AddWhen(n.Unschedulable, text.Yellow.Of("  cordoned"), text.Plain.Of(" by "+by))
	l.AddWhen(n.Excluded, text.Plain.Of("  kept from external load balancers by "+cmp.Or(n.ExcludedBy, another)))
	l.AddWhen(n.ClaimError != "", text.Red.Of("  unreadable: "+n.ClaimError),
		text.Plain.Of("; no rollout may take the node until a person mends or removes the annotation"))
	for i := range n.Claims {
		drawClaim(l, &n.Claims[i], now)
	}
	if n.Host != nil {
		drawHost(l, n.Host, now)
	}
	for i := range n.Machines {
		drawMachine(l, &n.Machines[i], now)
	}
	l.AddWhen(len(n.Evicted) > 0, text.Yellow.Of("  evicted"), text.Plain.Of(" and not known to be available again: "+strings.Join(n.Evicted, ", ")))
	for _, c := range n.Conditions {
		l.Add(text.Yellow.Of("  condition "+c.Type+" is "+c.Status), since(c.Since, c.Message, now))
	}
	l.AddWhen(len(n.Taints) > 0, text.Plain.Of("  tainted "+strings.Join(n.Taints, ", ")))
}

func drawClaim(l *text.Lines, c *v1alpha1.Claim, now time.Time) {
	if c.Skipped() {
		l.Add(text.Plain.Format("  skipped by %s %s ago: the claim records that, and blocks nothing", c.Rollout, text.Since(&c.Failed.Time, now)))
		return
	}
	by := " by " + c.Rollout + text.For(&c.Since, now) + text.When(c.Shared, ", shared")
	if c.Failed != nil {
		by += "; its turn failed " + text.Since(&c.Failed.Time, now) + " ago, and the node waits for a retry"
	}
	l.Add(text.Yellow.Of("  claimed"), text.Plain.Of(by))
}

var hostStyles = map[v1alpha1.HostState]text.Style{
	v1alpha1.HostStateBusy: text.Yellow, v1alpha1.HostStateError: text.Red, v1alpha1.HostStateReady: text.Green,
}

// drawHost writes the host's version and offered update, and its ordered and current action.
func drawHost(l *text.Lines, h *view.Host, now time.Time) {
	offers := "has not said whether there is an update"
	switch h.Update {
	case v1alpha1.HostUpdateTrue:
		offers = "has " + cmp.Or(h.Target, "an update or a reboot") + " to offer"
	case v1alpha1.HostUpdateFalse:
		offers = "has no update"
	}
	l.Add(
		text.Plain.Of("  host "), text.Plain.When(h.Version != "", "runs %s, ", h.Version),
		text.Plain.When(h.Previous != "" && h.Previous != h.Version, "ran %s before, ", h.Previous), text.Plain.Of(offers),
		text.Plain.When(h.Checked != nil, ", unchanged for %s", text.Since(h.Checked, now)),
		text.Plain.Format("; interface %s (%s)", h.Interface, h.Label),
	)

	action := func(a v1alpha1.HostAction) text.Piece { return text.Bold.Of(string(cmp.Or(a, "none"))) }
	l.Add(
		text.Plain.Of("  host wanted "), action(h.Wanted), text.Plain.Of(", active "), action(h.Active), text.Plain.Of(", state "),
		hostStyles[h.State].Of(string(cmp.Or(h.State, "none"))),
		text.Plain.When(h.Asked != "", ", target %s", h.Asked), text.Plain.When(h.Attempts > 0, ", attempt %d", h.Attempts),
	)
	l.AddWhen(h.Error != "", text.Red.Of("  host error: "+h.Error))
}

// drawMachine writes which machine replaces which in a turn.
func drawMachine(l *text.Lines, m *view.Machine, now time.Time) {
	machine := text.JoinNonEmpty(" of node ", cmp.Or(m.Machine, "unknown"), m.Node)
	replacement := text.JoinNonEmpty(" of node ", cmp.Or(m.Replacement, "a new one"), m.ReplacementNode)
	line := text.Line{
		text.Plain.Format("  scale set %s: machine %s is replaced by %s: ", m.ScaleSet, machine, replacement),
		text.Yellow.Of(string(m.Phase)), text.Plain.Of(text.For(&m.PhaseSince, now) + " (NodeRollout/" + m.Rollout + ")"),
	}
	if m.Failed != nil {
		line = append(line, text.Red.Of("  "+string(m.Failed.Reason)))
	}
	l.Add(line...)
}
