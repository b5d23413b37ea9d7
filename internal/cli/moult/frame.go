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
	"moult.dev/moult/internal/cli/source"
	"moult.dev/moult/internal/cli/text"
	"moult.dev/moult/internal/view"
)

var stateStyles = map[view.State]text.Style{view.Complete: text.Green, view.Progressing: text.Yellow, view.Stalled: text.Red}

// frame draws what needs a person, each rollout with its nodes, and the budgets. With all, each node has a line.
func frame(s *shown, now time.Time, all bool) text.Lines {
	l := drawNeeds(s)
	for i := range s.rollouts {
		l.AddWhen(len(l) > 0)
		r := &s.rollouts[i]
		l = slices.Concat(l, drawHeader(r, now), drawNodes(r, now, all))
	}
	if len(s.budgets) > 0 {
		l.AddWhen(len(l) > 0)
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
	var versions []string
	for _, v := range r.Versions {
		versions = append(versions, fmt.Sprintf("%s on %d", v.Version, v.Nodes))
	}
	all.AddWhen(len(versions) > 0, text.Plain.Of("  versions: "+text.Some(v1alpha1.MaxListedReleases, versions, ", ")))
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
	for _, s := range r.ScaleSets {
		if s.Reason == "" && (s.Machines == 0 && len(s.Operations) == 0 || r.State == view.Complete && s.RolledBack == "") {
			continue
		}
		parts := []string{
			fmt.Sprintf("  scale set %s: %s", s.Name, text.Count(int(s.Machines), "machine")), text.When(s.Outdated > 0, "%d outdated", s.Outdated),
		}
		for _, o := range s.Operations {
			switch o.Kind {
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
	for _, n := range r.Nodes {
		c.name = max(c.name, min(text.Width(n.Node), widest))
		if n.State != v1alpha1.UnitUpdated {
			c.phase = max(c.phase, min(len(n.Reason), widest), len(n.Phase))
		}
	}
	var lines text.Lines
	var updated []*view.Node
	for i := range r.Nodes {
		switch n := &r.Nodes[i]; n.State {
		case v1alpha1.UnitFailed:
			lines = append(lines, c.node("✗", text.Red, n, string(n.Reason), n.Message))
		case v1alpha1.UnitUpdating, v1alpha1.UnitSoaking:
			lines = append(lines, c.node("▶", text.Yellow, n, string(n.Phase), n.Message))
		case v1alpha1.UnitUpdated:
			updated = append(updated, n)
		}
	}
	for _, w := range view.WaitsOf(r.Nodes) {
		if len(w.Nodes) > 1 && !all {
			lines.Add(text.Dim.Of("  · "), text.Plain.Format("%d wait: %s", len(w.Nodes), text.JoinNonEmpty(": ", string(w.Reason), w.Message)))
			continue
		}
		for _, n := range w.Nodes {
			lines = append(lines, c.node("·", text.Dim, &n, string(w.Reason), w.Message))
			w.Message = "" // One line has it.
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

var waveStyles = map[v1alpha1.WaveState]text.Style{
	v1alpha1.WaveHalted: text.Red, v1alpha1.WaveUnhealthy: text.Red, v1alpha1.WaveWaitingForApproval: text.Yellow,
	v1alpha1.WaveSoaking: text.Yellow, v1alpha1.WaveProgressing: text.Yellow, v1alpha1.WaveComplete: text.Green,
}

// drawSteering makes the lines about what a person did to the rollout, and what stops it. A zero now leaves out durations and commands.
func drawSteering(r *view.Rollout, now time.Time) text.Lines {
	var all text.Lines
	if r.Paused && r.State != view.Complete {
		paused, resume := "paused", "kubectl moult resume "+source.Arg(r.Kind, r.Namespace, r.Name)
		if r.PausedBy != "" {
			paused, resume = "paused by annotation "+r.PausedBy, unpauseCommand(r.PausedBy, r.Namespace, r.Name)
		}
		all.Add(text.Yellow.Of("  "+paused+": nothing new starts"), text.Dim.When(!now.IsZero(), "  (%s)", resume))
	}
	if w := r.Wave; w != nil && r.State != view.Complete {
		message := waveMessage(r)
		all.Add(
			text.Plain.Format("  wave %d of %d, %s: ", w.Number, w.Of, w.Name), waveStyles[w.State].Of(string(w.State)),
			text.Plain.Format("%s, %d of %d updated", text.For(&w.Since, now), w.Updated, w.Nodes), text.Plain.When(message != "", "; %s", message),
		)
	}
	return all
}

// unpauseCommand is the command that removes an annotation that pauses an ExtendedDaemonSet.
func unpauseCommand(annotation, namespace, name string) string {
	verb := "unpause-rolling-update"
	if annotation == edsv1.AnnotationRolloutFrozen {
		verb = "unfreeze-rollout"
	}
	return "kubectl eds " + verb + " " + name + " -n " + namespace
}

// waveMessage is what the wave's state does not say already.
func waveMessage(r *view.Rollout) string {
	w := r.Wave
	if w == nil || r.Halted != "" || w.State == v1alpha1.WaveWaitingForApproval || w.State == v1alpha1.WaveComplete ||
		w.State == v1alpha1.WaveProgressing && w.Nodes > 0 {
		return ""
	}
	return w.Message
}

var budgetStyles = map[view.BudgetState]text.Style{
	view.BudgetOpen: text.Green, view.BudgetExhausted: text.Yellow, view.BudgetBlocked: text.Red, view.BudgetInvalid: text.Red,
}

// drawBudgets makes a line for each budget. With all, it adds one for each unavailable node.
func drawBudgets(budgets []view.Budget, now time.Time, all bool) text.Lines {
	name, state := 0, 0
	for _, b := range budgets {
		name = max(name, min(text.Width(b.Name), widest))
		state = max(state, len(b.State))
	}
	lines := text.Lines{{text.Bold.Of("Budgets")}}
	for _, b := range budgets {
		l := text.Line{
			text.Plain.Of("  " + text.Fill(b.Name, name) + "  "), budgetStyles[b.State].Format("%-*s  ", state, b.State), text.Plain.Of(b.Line()),
		}
		for _, block := range b.BlockedBy {
			l = append(l, text.Red.Of("; "+blockText(block, now)))
		}
		lines = append(lines, l)
		if !all {
			continue
		}
		for _, h := range b.Holders {
			lines.Add(text.Plain.Of("    "+h.Node+"  "), text.Yellow.Of(string(h.Cause)), text.Dim.Of("  "+cmp.Or(h.Message, h.By)))
		}
	}
	return lines
}

// blockText says what blocks, and since when.
func blockText(b v1alpha1.BudgetBlock, now time.Time) string {
	return text.JoinNonEmpty(": ", string(b.Gate)+text.For(&b.Since, now), b.Message)
}

// need is something that only a person can change.
type need struct {
	view.Need
	// Command is what helps; empty if no single command does.
	Command string `json:"command,omitempty"`
}

// needs lists what needs a person, with the command that helps.
func needs(s *shown) []need {
	all := []need{}
	for _, n := range view.Needs(s.rollouts, s.budgets) {
		arg, command := source.Arg(n.Kind, n.Namespace, n.Name), ""
		switch n.Cause {
		case view.NeedCanaryPaused:
			command = "kubectl eds canary unpause " + n.Name + " -n " + n.Namespace
		case view.NeedCanaryFailed:
			command = "kubectl eds canary reset " + n.Name + " -n " + n.Namespace
		case view.NeedHalted:
			command = text.When(n.Kind != source.DaemonSet.Name, "kubectl moult retry %s", arg)
		case view.NeedFailed:
			n.Message, command = text.Count(len(n.Nodes), "node")+" failed: "+text.Some(few, n.Nodes, ", "), "kubectl moult why "+n.Nodes[0]
		case view.NeedPolicy:
			command = "kubectl moult check"
		case view.NeedApproval:
			command = "kubectl moult approve " + arg
		case view.NeedBudget:
			command = "kubectl describe ndb " + n.Name
		}
		all = append(all, need{n, command})
	}
	return all
}

// drawNeeds writes what needs a person, with the command that helps.
func drawNeeds(s *shown) (l text.Lines) {
	for i, n := range needs(s) {
		l.AddWhen(i == 0, text.Bold.Of("Needs a person"))
		l.Add(
			text.Red.Of("  ! "), text.Plain.Of(n.Kind+" "), text.Bold.Of(n.FullName()), text.Plain.Of(": "+n.Message),
			text.Dim.When(n.Command != "", "  (%s)", n.Command),
		)
	}
	return l
}
