// SPDX-License-Identifier: Apache-2.0

package moult

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cli/text"
	"moult.dev/moult/internal/view"
)

var stateStyles = map[view.State]text.Style{view.Complete: text.Green, view.Progressing: text.Yellow, view.Stalled: text.Red}

// frame draws a header and the nodes of each rollout, and a line for each budget. The layout bounds the lines.
func frame(s *shown, now time.Time, l layout) text.Lines {
	blocks := make([]block, 0, len(s.rollouts)+1)
	for i := range s.rollouts {
		r := &s.rollouts[i]
		blocks = append(blocks, block{header: drawHeader(r, now), groups: drawNodes(r, now)})
	}
	if len(s.budgets) > 0 {
		blocks = append(blocks, drawBudgets(s.budgets, now, l.all))
	}
	return fit(blocks, l)
}

// drawHeader makes the lines about the rollout itself.
func drawHeader(r *view.Rollout, now time.Time) text.Lines {
	l := text.Line{text.Plain.Of(r.Kind + " "), text.Bold.Of(r.FullName())}
	if r.Version != "" {
		l = append(l, text.Plain.Of("  "+r.Version))
	}
	l = append(l, stateStyles[r.State].Of("  "+string(r.State)), text.Plain.Of(text.For(r.Since, now)))
	if r.State == view.Complete {
		l = append(l, text.Plain.Format(", %d of %d updated", r.Counts.Updated, r.Counts.Total))
	}
	if r.Stage != "" && r.Stage != edsv1.StateRunning {
		l = append(l, text.Plain.Format(" (%s)", r.Stage))
	}
	if r.OptedOut > 0 {
		l = append(l, text.Dim.Format(" (%d opted out)", r.OptedOut))
	}
	if r.Unlabelled > 0 {
		l = append(l, text.Dim.Format(" (%d without an interface label)", r.Unlabelled))
	}
	all := text.Lines{l}
	if r.State != view.Complete && r.State != view.Pending && r.Counts.Total > 0 {
		all = append(all, progressBar(r.Counts))
		if p := r.Pods; p != nil {
			all.Add(text.Plain.Format("  pods: %d desired, %d current, %d ready, %d available, %d up to date",
				p.Desired, p.Current, p.Ready, p.Available, p.UpToDate))
		}
	}
	if len(r.Versions) > 0 {
		var versions []string
		for _, v := range r.Versions {
			versions = append(versions, fmt.Sprintf("%s on %d", v.Version, v.Nodes))
		}
		all.Add(text.Plain.Of("  versions: " + text.Some(v1alpha1.MaxListedReleases, versions, ", ")))
	}
	all = append(all, drawScaleSets(r, now)...)
	all = append(all, drawSteering(r, now)...)
	inNodes := func(n view.Node) bool { return strings.HasPrefix(n.Message, r.Message) }
	if r.Message != "" && !slices.ContainsFunc(r.Nodes, inNodes) && !isSteeringMessage(r) {
		all.Add(stateStyles[r.State].Of("  " + r.Message))
	}
	return all
}

// barWidth is the width of a progress bar.
const barWidth = 30

// progressBar draws a rollout's progress as a bar and text.
func progressBar(c v1alpha1.UnitCounts) text.Line {
	l := text.Line{text.Plain.Of("  ")}
	counts := []string{fmt.Sprintf("%d of %d updated", c.Updated, c.Total)}
	done, cells := 0, 0
	for _, part := range []struct {
		n     int32
		what  string
		cell  string
		style text.Style
	}{
		{c.Updated, "", "█", text.Green}, {c.Updating, "updating", "▓", text.Yellow},
		{c.Failed, "failed", "×", text.Red}, {c.Waiting, "waiting", "░", text.Dim},
	} {
		done += int(part.n)
		end := done * barWidth / int(c.Total)
		l = append(l, part.style.Of(strings.Repeat(part.cell, end-cells)))
		cells = end
		if part.n > 0 && part.what != "" {
			counts = append(counts, fmt.Sprintf("%d %s", part.n, part.what))
		}
	}
	return append(l, text.Plain.Of("  "+strings.Join(counts, ", ")))
}

// maxScaleSets bounds how many scale sets without trouble are shown.
const maxScaleSets = 5

// drawScaleSets makes a line for each scale set, those with trouble first. If the rollout is complete, it shows only these.
func drawScaleSets(r *view.Rollout, now time.Time) text.Lines {
	var trouble, others text.Lines
	for i := range r.ScaleSets {
		s := &r.ScaleSets[i]
		parts := []string{fmt.Sprintf("  scale set %s: %s", s.Name, text.Count(int(s.Machines), "machine"))}
		if s.Outdated > 0 {
			parts = append(parts, fmt.Sprintf("%d outdated", s.Outdated))
		}
		parts = append(parts, operations(s)...)
		if s.Image != "" {
			parts = append(parts, "image "+s.Image[strings.LastIndex(s.Image, "/")+1:])
		}
		if s.RolledBack != "" {
			parts = append(parts, "put back in place of "+s.RolledBack[strings.LastIndex(s.RolledBack, "/")+1:])
		}
		l := text.Line{text.Plain.Of(strings.Join(parts, ", "))}
		if s.Reason == "" {
			others = append(others, l)
			continue
		}
		l = append(l, text.Red.Of("  "+string(s.Reason)), text.Plain.Of(text.For(s.Since, now)))
		if s.Message != "" {
			l = append(l, text.Plain.Of(": "+s.Message))
		}
		trouble = append(trouble, l)
	}
	if r.State == view.Complete {
		return trouble
	}
	if more := len(others) - maxScaleSets; more > 0 {
		others = append(others[:maxScaleSets], text.Line{text.Dim.Format("  and %d more scale sets", more)})
	}
	return append(trouble, others...)
}

// operations says what the cloud is doing with a scale set for the rollout.
func operations(s *v1alpha1.ScaleSetStatus) []string {
	adds, deletes, images := 0, 0, 0
	for i := range s.Operations {
		switch o := &s.Operations[i]; o.Kind {
		case v1alpha1.CloudOperationAdd:
			adds += int(o.Count) - len(o.Machines)
		case v1alpha1.CloudOperationDelete:
			deletes += len(o.Machines)
		case v1alpha1.CloudOperationSetImage:
			images++
		}
	}
	var all []string
	if adds > 0 {
		all = append(all, fmt.Sprintf("%d being added", adds))
	}
	if deletes > 0 {
		all = append(all, fmt.Sprintf("%d being deleted", deletes))
	}
	if images > 0 {
		all = append(all, "its image being set")
	}
	return all
}

// drawNodes makes the lines of the rollout's nodes, in groups.
func drawNodes(r *view.Rollout, now time.Time) []group {
	c := columns{now: now, phase: len(v1alpha1.ReasonMaxConcurrent)}
	for i := range r.Nodes {
		n := &r.Nodes[i]
		c.name = max(c.name, min(text.Width(n.Node), widest))
		if n.State != v1alpha1.UnitUpdated {
			c.phase = max(c.phase, min(len(n.Reason), widest), len(n.Phase))
		}
	}
	failed, updating, updated := group{}, group{}, group{minor: true}
	var waiting []group
	for i := range r.Nodes {
		switch n := &r.Nodes[i]; n.State {
		case v1alpha1.UnitFailed:
			failed.lines = append(failed.lines, c.node("✗", text.Red, n, string(n.Reason), n.Message))
		case v1alpha1.UnitUpdating, v1alpha1.UnitSoaking:
			updating.lines = append(updating.lines, c.node("▶", text.Yellow, n, string(n.Phase), n.Message))
		case v1alpha1.UnitOutdated:
			waiting = c.addWaiting(waiting, n)
		case v1alpha1.UnitUpdated:
			updated.lines = append(updated.lines, text.Line{
				text.Green.Of("  ✓ "), text.Plain.Of(text.Fill(n.Node, c.name) + "  "), text.Green.Format("%-*s  ", c.phase+7, n.State),
				text.Dim.Of(strings.Join(marks(n), ", ")),
			}.Trimmed())
		}
	}
	failed.rest = func(n int) text.Line { return text.Line{text.Red.Of(remaining(n, len(failed.lines), "failed"))} }
	updating.rest = func(n int) text.Line { return text.Line{text.Yellow.Of(remaining(n, len(updating.lines), "updating"))} }
	updated.rest = func(n int) text.Line {
		return text.Line{text.Green.Of("  ✓ "), text.Dim.Of(strings.TrimLeft(remaining(n, len(updated.lines), "updated"), " "))}
	}
	return slices.Concat([]group{failed, updating}, waiting, []group{updated})
}

// remaining says how many lines are not shown.
func remaining(hidden, all int, what string) string {
	if hidden < all {
		return fmt.Sprintf("    and %d more %s", hidden, what)
	}
	return fmt.Sprintf("    %d %s", hidden, what)
}

// columns keeps the lines of one rollout aligned.
type columns struct {
	now         time.Time
	name, phase int
}

// widest bounds the width of a column. Longer text does not widen it.
const widest = 40

// node draws one node: its step, since when, and why.
func (c *columns) node(symbol string, s text.Style, n *view.Node, word, message string) text.Line {
	return text.Line{
		s.Of("  " + symbol + " "),
		text.Plain.Of(text.Fill(n.Node, c.name) + "  "),
		s.Format("%-*s  ", c.phase, word),
		text.Plain.Format("%-5s  ", text.Since(n.Since, c.now)),
		text.Dim.Of(text.JoinSet(", ", append(marks(n), message)...)),
	}.Trimmed()
}

// addWaiting adds a node to those that wait for the same reason. Only the first has the message.
func (c *columns) addWaiting(groups []group, n *view.Node) []group {
	reason, message := string(cmp.Or(n.Reason, "Next")), ""
	i := slices.IndexFunc(groups, func(g group) bool { return g.reason == reason })
	if i < 0 {
		i, message = len(groups), n.Message
		groups = append(groups, group{minor: true, reason: reason, message: n.Message})
	}
	g := &groups[i]
	g.lines = append(g.lines, c.node("·", text.Dim, n, reason, message))
	total, why := len(g.lines), text.JoinSet(": ", reason, g.message)
	g.rest = func(hidden int) text.Line {
		if hidden < total {
			return text.Line{text.Dim.Format("  · and %d more wait: %s", hidden, reason)}
		}
		return text.Line{text.Dim.Of("  · "), text.Plain.Format("%d wait: %s", hidden, why)}
	}
	return groups
}

// marks are states of the node that its turn does not explain.
func marks(n *view.Node) []string {
	var all []string
	if versions := text.JoinSet(" → ", n.Version, n.Target); versions != "" {
		all = append(all, versions)
	}
	if n.Canary {
		all = append(all, "canary")
	}
	if n.Cordoned && !n.InTurn() && n.State != v1alpha1.UnitFailed {
		all = append(all, "cordoned")
	}
	if n.NotReady {
		all = append(all, "not ready")
	}
	return all
}
