// SPDX-License-Identifier: Apache-2.0

package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/duration"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cli/text"
	"moult.dev/moult/internal/view"
)

// frame draws what is to be seen: of each rollout a header, and then its nodes in as many lines as detail and height allow;
// and a line of each budget.
func frame(s *shown, h *history, now time.Time, d detail, height int) lines {
	blocks := make([]block, 0, len(s.rollouts)+1)
	for i := range s.rollouts {
		blocks = append(blocks, draw(&s.rollouts[i], h, now))
	}
	if len(s.budgets) > 0 {
		blocks = append(blocks, drawBudgets(s.budgets, now, d))
	}
	return fit(blocks, d, height)
}

// draw makes the lines of one rollout.
func draw(r *view.Rollout, h *history, now time.Time) block {
	c := columns{now: now, phase: len(v1alpha1.ReasonMaxConcurrent)}
	c.measure(r.Nodes)
	b := block{header: header(r, now)}
	if r.State != view.Complete && r.State != view.Pending && r.Counts.Total > 0 {
		b.header = append(b.header, progress(r.Counts))
		if r.Pods != nil {
			b.header = append(b.header, pods(r.Pods))
		}
	}
	if len(r.Versions) > 0 {
		b.header = append(b.header, versions(r.Versions))
	}
	b.header = append(b.header, scaleSets(r, now)...)
	b.header = append(b.header, steering(r, now)...)
	said := func(n view.Node) bool { return strings.HasPrefix(n.Message, r.Message) }
	if r.Message != "" && !slices.ContainsFunc(r.Nodes, said) && !repeated(r) {
		b.header = append(b.header, line{colourOf(r.State).Of("  " + r.Message)})
	}

	failed, turning, updated := group{rank: rankFailed}, group{rank: rankTurning}, group{rank: rankUpdated}
	var waiting []group
	for i := range r.Nodes {
		switch n := &r.Nodes[i]; n.State {
		case v1alpha1.UnitFailed:
			failed.lines = append(failed.lines, c.node("✗", red, n, string(n.Reason), n.Message))
		case v1alpha1.UnitUpdating, v1alpha1.UnitSoaking:
			turning.lines = append(turning.lines, c.node("▶", yellow, n, string(n.Phase), n.Message))
		case v1alpha1.UnitOutdated:
			waiting = c.wait(waiting, n)
		case v1alpha1.UnitUpdated:
		}
	}
	failed.rest = func(n int) line { return line{red.Of(remaining(n, len(failed.lines), "failed"))} }
	turning.rest = func(n int) line { return line{yellow.Of(remaining(n, len(turning.lines), "updating"))} }
	for _, n := range h.latestFirst(r) {
		updated.lines = append(updated.lines, c.updated(n, h.took(r, n)))
	}
	updated.rest = func(n int) line {
		return line{green.Of("  ✓ "), dim.Of(strings.TrimLeft(remaining(n, len(updated.lines), "updated"), " "))}
	}
	b.groups = slices.Concat([]group{failed, turning}, waiting, []group{updated})
	return b
}

// remaining says how many lines are not shown.
func remaining(hidden, all int, what string) string {
	if hidden < all {
		return fmt.Sprintf("    and %d more %s", hidden, what)
	}
	return fmt.Sprintf("    %d %s", hidden, what)
}

func header(r *view.Rollout, now time.Time) []line {
	l := line{plain.Of(r.Kind + " "), bold.Of(r.FullName())}
	if r.Version != "" {
		l = append(l, plain.Of("  "+r.Version))
	}
	l = append(l, colourOf(r.State).Of("  "+string(r.State)))
	if age := text.Since(r.Since, now); age != "" {
		l = append(l, plain.Of(" for "+age))
	}
	if r.State == view.Complete {
		l = append(l, plain.Of(fmt.Sprintf(", %d of %d updated", r.Counts.Updated, r.Counts.Total)))
	}
	if r.Stage != "" && r.Stage != edsv1.StateRunning {
		l = append(l, plain.Of(" ("+string(r.Stage)+")"))
	}
	if r.OptedOut > 0 {
		l = append(l, dim.Of(fmt.Sprintf(" (%d opted out)", r.OptedOut)))
	}
	if r.Unlabelled > 0 {
		l = append(l, dim.Of(fmt.Sprintf(" (%d without an interface label)", r.Unlabelled)))
	}
	return []line{l}
}

// versions says how many nodes run which version.
func versions(of []v1alpha1.HostVersion) line {
	var all []string
	for _, v := range of[:min(len(of), v1alpha1.MaxListedReleases)] {
		all = append(all, fmt.Sprintf("%s on %d", v.Version, v.Nodes))
	}
	if more := len(of) - v1alpha1.MaxListedReleases; more > 0 {
		all = append(all, fmt.Sprintf("and %d more", more))
	}
	return line{plain.Of("  versions: " + strings.Join(all, ", "))}
}

// maxScaleSets bounds how many scale sets are shown of which there is nothing to say.
const maxScaleSets = 5

// scaleSets says how the scale sets of a rollout stand, those with trouble first. Where all is done, only those are shown.
func scaleSets(r *view.Rollout, now time.Time) []line {
	var trouble, others []line
	for i := range r.ScaleSets {
		s := &r.ScaleSets[i]
		said := fmt.Sprintf("  scale set %s: %d machine", s.Name, s.Machines)
		if s.Machines != 1 {
			said += "s"
		}
		if s.Outdated > 0 {
			said += fmt.Sprintf(", %d outdated", s.Outdated)
		}
		said += under(s)
		if s.Image != "" {
			said += ", image " + s.Image[strings.LastIndex(s.Image, "/")+1:]
		}
		if s.RolledBack != "" {
			said += ", put back in place of " + s.RolledBack[strings.LastIndex(s.RolledBack, "/")+1:]
		}
		l := line{plain.Of(said)}
		if s.Reason == "" {
			others = append(others, l)
			continue
		}
		l = append(l, red.Of("  "+string(s.Reason)))
		if age := text.Since(s.Since, now); age != "" {
			l = append(l, plain.Of(" for "+age))
		}
		trouble = append(trouble, append(l, plain.Of(strings.Join(append([]string{""}, nonempty(s.Message)...), ": "))))
	}
	if r.State == view.Complete {
		return trouble
	}
	if more := len(others) - maxScaleSets; more > 0 {
		others = append(others[:maxScaleSets], line{dim.Of(fmt.Sprintf("  and %d more scale sets", more))})
	}
	return append(trouble, others...)
}

// under says what the cloud is doing with a scale set for the rollout.
func under(s *v1alpha1.ScaleSetStatus) string {
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
	said := ""
	if adds > 0 {
		said += fmt.Sprintf(", %d being added", adds)
	}
	if deletes > 0 {
		said += fmt.Sprintf(", %d being deleted", deletes)
	}
	if images > 0 {
		said += ", its image being set"
	}
	return said
}

func colourOf(s view.State) style {
	switch s {
	case view.Complete:
		return green
	case view.Progressing:
		return yellow
	case view.Stalled:
		return red
	case view.Pending, view.Waiting:
	}
	return plain
}

// barWidth is the width of a progress bar.
const barWidth = 30

// progress draws how far a rollout has come, and says it.
func progress(c v1alpha1.UnitCounts) line {
	l := line{plain.Of("  ")}
	said := []string{fmt.Sprintf("%d of %d updated", c.Updated, c.Total)}
	done, cells := 0, 0
	for _, part := range []struct {
		n     int32
		what  string
		cell  string
		style style
	}{
		{c.Updated, "", "█", green}, {c.Updating, "updating", "▓", yellow}, {c.Failed, "failed", "×", red}, {c.Waiting, "waiting", "░", dim},
	} {
		done += int(part.n)
		upto := done * barWidth / int(c.Total)
		l = append(l, part.style.Of(strings.Repeat(part.cell, upto-cells)))
		cells = upto
		if part.n > 0 && part.what != "" {
			said = append(said, fmt.Sprintf("%d %s", part.n, part.what))
		}
	}
	return append(l, plain.Of("  "+strings.Join(said, ", ")))
}

// pods says how many pods a daemon has.
func pods(c *view.PodCounts) line {
	return line{plain.Of(fmt.Sprintf("  pods: %d desired, %d current, %d ready, %d available, %d up to date", c.Desired, c.Current, c.Ready, c.Available, c.UpToDate))}
}

// columns keeps the lines of one rollout aligned.
type columns struct {
	now         time.Time
	name, phase int
}

// widest bounds a column: what is longer does not move the others.
const widest = 40

func (c *columns) measure(nodes []view.Node) {
	for i := range nodes {
		n := &nodes[i]
		c.name = max(c.name, min(utf8.RuneCountInString(n.Node), widest))
		if n.State != v1alpha1.UnitUpdated {
			c.phase = max(c.phase, min(len(n.Reason), widest), len(n.Phase))
		}
	}
}

// node draws one node: how it stands, since when, and why.
func (c *columns) node(symbol string, s style, n *view.Node, word, message string) line {
	l := line{
		s.Of("  " + symbol + " "),
		plain.Of(fmt.Sprintf("%-*s  ", c.name, n.Node)),
		s.Of(fmt.Sprintf("%-*s  ", c.phase, word)),
		plain.Of(fmt.Sprintf("%-5s  ", text.Since(n.Since, c.now))),
	}
	return append(l, dim.Of(strings.Join(append(flags(n), nonempty(message)...), ", "))).Trimmed()
}

func (c *columns) updated(n *view.Node, took time.Duration) line {
	word := "Updated"
	if took > 0 {
		word += " in " + duration.HumanDuration(max(took, time.Second))
	}
	l := line{green.Of("  ✓ "), plain.Of(fmt.Sprintf("%-*s  ", c.name, n.Node)), green.Of(fmt.Sprintf("%-*s  ", c.phase+7, word))}
	return append(l, dim.Of(strings.Join(flags(n), ", "))).Trimmed()
}

// wait adds a node to those that wait for the same reason. The first of them says it at length.
func (c *columns) wait(groups []group, n *view.Node) []group {
	reason := string(cmp.Or(n.Reason, "Next"))
	message := ""
	i := slices.IndexFunc(groups, func(g group) bool { return g.reason == reason })
	if i < 0 {
		i, message = len(groups), n.Message
		groups = append(groups, group{rank: rankWaiting, reason: reason, message: n.Message})
	}
	g := &groups[i]
	g.lines = append(g.lines, c.node("·", dim, n, reason, message))
	total, said := len(g.lines), strings.Join(append([]string{reason}, nonempty(g.message)...), ": ")
	g.rest = func(hidden int) line {
		if hidden < total {
			return line{dim.Of(fmt.Sprintf("  · and %d more wait: %s", hidden, reason))}
		}
		return line{dim.Of("  · "), plain.Of(fmt.Sprintf("%d wait: %s", hidden, said))}
	}
	return groups
}

// flags tells of a node what its turn does not explain.
func flags(n *view.Node) []string {
	var all []string
	switch {
	case n.Version != "" && n.Target != "":
		all = append(all, n.Version+" → "+n.Target)
	case n.Version+n.Target != "":
		all = append(all, n.Version+n.Target)
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

func nonempty(said string) []string {
	if said == "" {
		return nil
	}
	return []string{said}
}
