// SPDX-License-Identifier: Apache-2.0

package moult

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cli/text"
	"moult.dev/moult/internal/view"
)

var stateStyles = map[view.State]text.Style{view.Complete: text.Green, view.Progressing: text.Yellow, view.Stalled: text.Red}

// frame draws what needs a person, each rollout with its nodes, and the budgets. With all, each node has a line.
func frame(s *shown, now time.Time, all bool) text.Lines {
	l := drawNeeds(s)
	for i := range s.rollouts {
		if len(l) > 0 {
			l.Add()
		}
		r := &s.rollouts[i]
		l = slices.Concat(l, drawHeader(r, now), drawNodes(r, now, all))
	}
	if len(s.budgets) > 0 {
		if len(l) > 0 {
			l.Add()
		}
		l = append(l, drawBudgets(s.budgets, now, all)...)
	}
	return l
}

// title names a rollout and its version.
func title(r *view.Rollout, version string) text.Line {
	return text.Line{
		text.Plain.Of(r.Kind + " "), text.Bold.Of(r.FullName()), text.Plain.When(version != "", "  %s", version),
		text.Yellow.When(r.RolledBack != "", " (rolled back from %s)", r.RolledBack),
	}
}

// drawHeader makes the lines about the rollout itself.
func drawHeader(r *view.Rollout, now time.Time) text.Lines {
	all := text.Lines{append(title(r, r.Version),
		stateStyles[r.State].Of("  "+string(r.State)), text.Plain.Of(text.For(r.Since, now)),
		text.Plain.When(r.State == view.Complete, ", %d of %d updated", r.Counts.Updated, r.Counts.Total),
		text.Plain.When(r.Stage != "" && r.Stage != edsv1.StateRunning, " (%s)", r.Stage),
		text.Dim.When(r.OptedOut > 0, " (%d opted out)", r.OptedOut),
		text.Dim.When(r.Unlabelled > 0, " (%d without an interface label)", r.Unlabelled),
	)}
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
	if inWave := waveMessage(r); r.Message != "" && !slices.ContainsFunc(r.Nodes, inNodes) && (inWave == "" || !strings.Contains(r.Message, inWave)) {
		all.Add(stateStyles[r.State].Of("  " + r.Message))
	}
	return all
}

// barWidth is the width of a progress bar.
const barWidth = 30

// progressBar draws a rollout's progress as a bar and text.
func progressBar(c v1alpha1.UnitCounts) text.Line {
	l := text.Line{text.Plain.Of("  ")}
	done, cells := 0, 0
	for _, part := range []struct {
		n     int32
		cell  string
		style text.Style
	}{{c.Updated, "█", text.Green}, {c.Updating, "▓", text.Yellow}, {c.Failed, "×", text.Red}, {c.Waiting, "░", text.Dim}} {
		done += int(part.n)
		end := done * barWidth / int(c.Total)
		l = append(l, part.style.Of(strings.Repeat(part.cell, end-cells)))
		cells = end
	}
	return append(l, text.Plain.Of(text.JoinNonEmpty(", ",
		fmt.Sprintf("  %d of %d updated", c.Updated, c.Total), text.When(c.Updating > 0, "%d updating", c.Updating),
		text.When(c.Failed > 0, "%d failed", c.Failed), text.When(c.Waiting > 0, "%d waiting", c.Waiting),
	)))
}

// drawScaleSets makes a line for each scale set. If the rollout is complete, it shows only those with trouble.
func drawScaleSets(r *view.Rollout, now time.Time) text.Lines {
	var all text.Lines
	for i := range r.ScaleSets {
		s := &r.ScaleSets[i]
		if s.Reason == "" && r.State == view.Complete {
			continue
		}
		parts := []string{
			fmt.Sprintf("  scale set %s: %s", s.Name, text.Count(int(s.Machines), "machine")), text.When(s.Outdated > 0, "%d outdated", s.Outdated),
		}
		for j := range s.Operations {
			switch o := &s.Operations[j]; o.Kind {
			case v1alpha1.CloudOperationAdd:
				parts = append(parts, fmt.Sprintf("%d being added", int(o.Count)-len(o.Machines)))
			case v1alpha1.CloudOperationDelete:
				parts = append(parts, fmt.Sprintf("%d being deleted", len(o.Machines)))
			case v1alpha1.CloudOperationSetImage:
				parts = append(parts, "its image being set")
			}
		}
		parts = append(parts, text.When(s.Image != "", "image %s", path.Base(s.Image)),
			text.When(s.RolledBack != "", "put back in place of %s", path.Base(s.RolledBack)))
		l := text.Line{text.Plain.Of(text.JoinNonEmpty(", ", parts...))}
		if s.Reason != "" {
			l = append(l, text.Red.Of("  "+string(s.Reason)), since(s.Since, s.Message, now))
		}
		all.Add(l...)
	}
	return all
}

// drawNodes makes the lines of the rollout's nodes. Without all, nodes that wait for the same reason, and updated nodes, are only counted.
func drawNodes(r *view.Rollout, now time.Time, all bool) text.Lines {
	c := columns{now: now, phase: len(v1alpha1.ReasonMaxConcurrent)}
	for i := range r.Nodes {
		n := &r.Nodes[i]
		c.name = max(c.name, min(text.Width(n.Node), widest))
		if n.State != v1alpha1.UnitUpdated {
			c.phase = max(c.phase, min(len(n.Reason), widest), len(n.Phase))
		}
	}
	var lines text.Lines
	var reasons []v1alpha1.Reason
	waiting := map[v1alpha1.Reason][]*view.Node{}
	var updated []*view.Node
	for i := range r.Nodes {
		switch n := &r.Nodes[i]; n.State {
		case v1alpha1.UnitFailed:
			lines = append(lines, c.node("✗", text.Red, n, string(n.Reason), n.Message))
		case v1alpha1.UnitUpdating, v1alpha1.UnitSoaking:
			lines = append(lines, c.node("▶", text.Yellow, n, string(n.Phase), n.Message))
		case v1alpha1.UnitOutdated:
			reason := cmp.Or(n.Reason, "Next")
			if waiting[reason] == nil {
				reasons = append(reasons, reason)
			}
			waiting[reason] = append(waiting[reason], n)
		case v1alpha1.UnitUpdated:
			updated = append(updated, n)
		}
	}
	for _, reason := range reasons {
		nodes, message := waiting[reason], waiting[reason][0].Message
		if len(nodes) > 1 && !all {
			lines.Add(text.Dim.Of("  · "), text.Plain.Format("%d wait: %s", len(nodes), text.JoinNonEmpty(": ", string(reason), message)))
			continue
		}
		for _, n := range nodes {
			lines = append(lines, c.node("·", text.Dim, n, string(reason), message))
			message = "" // One line has it.
		}
	}
	if len(updated) > 1 && !all {
		lines.Add(text.Green.Of("  ✓ "), text.Dim.Format("%d updated", len(updated)))
		return lines
	}
	for _, n := range updated {
		lines = append(lines, c.node("✓", text.Green, n, string(n.State), ""))
	}
	return lines
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
		text.Dim.Of(text.JoinNonEmpty(", ",
			text.JoinNonEmpty(" → ", n.Version, n.Target), text.When(n.Canary, "canary"),
			text.When(n.Cordoned && !n.InTurn() && n.State != v1alpha1.UnitFailed, "cordoned"), text.When(n.NotReady, "not ready"), message,
		)),
	}
}
