// SPDX-License-Identifier: Apache-2.0

package moult

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"moult.dev/moult/internal/cli/source"
	"moult.dev/moult/internal/cli/text"
	"moult.dev/moult/internal/drain"
	"moult.dev/moult/internal/view"
)

func nodes[T any](all []T) string { return text.Count(len(all), "node") }

// draw writes what a rollout would do.
func (c *previewCommand) draw(l *text.Lines, r *result, s *subject, now time.Time) {
	drawHead(l, r)
	l.AddWhen(r.Problem != "", text.Red.Of("  nothing can start: "+r.Problem))
	*l = append(*l, drawNodes(&view.Rollout{Nodes: slices.Concat(r.Failed, r.InTurn)}, now, true)...)
	c.drawDaemon(l, r)
	drawSurge(l, r.Surge)
	c.drawSteps(l, r, now)
	for _, u := range r.Unfit {
		l.Add(text.Plain.Format("  no pod on %s (%s): %s", nodes(u.Nodes), c.few(u.Nodes), u.Message))
	}
	l.AddWhen(len(r.Unlabelled) > 0, text.Plain.Format("  ignored: %s (%s), no label names the interface of the host", nodes(r.Unlabelled), c.few(r.Unlabelled)))
	for _, b := range r.Budgets {
		l.Add(text.Plain.Of("  budget " + b.Name + ": " + string(b.State) + ", " + b.Line()))
	}
	end := endText(r, now)
	l.AddWhen(end != "", text.Plain.Of("  "+end))
	if s.kind != source.DaemonSet && len(r.Steps) > 0 {
		c.drawDrains(l, r, s)
	}
	for _, note := range r.Notes {
		l.Add(text.Dim.Of("  " + note))
	}
}

func drawHead(l *text.Lines, r *result) {
	version := r.Rollout.Version
	if r.New {
		version = "not in the cluster yet"
	}
	n := &r.Rollout.Counts
	l.Add(append(title(&r.Rollout, version), text.Plain.Of(text.JoinNonEmpty(", ",
		"  "+text.Count(int(n.Total), "node")+" selected", text.When(n.Updated > 0, "%d updated", n.Updated),
		text.When(n.Updating > 0, "%d in a turn", n.Updating), text.When(n.Failed > 0, "%d failed", n.Failed),
		text.When(r.Rollout.OptedOut > 0, "%d opted out", r.Rollout.OptedOut),
	)))...)
}

// drawSteps writes the nodes in order, wave by wave. Nodes beyond the limit are only counted.
func (c *previewCommand) drawSteps(l *text.Lines, r *result, now time.Time) {
	l.AddWhen(len(r.Steps) == 0 && r.Creation == nil, text.Green.Of("  no node needs a turn"))
	name, inWave := 0, map[string]int{}
	for _, s := range r.Steps {
		name = max(name, text.Width(s.Node))
		inWave[s.Wave]++
	}
	steps := r.Steps
	if !c.all {
		steps = steps[:min(len(steps), c.limit)]
	}
	wave, last := "", ""
	for i, s := range steps {
		if s.Wave != wave && s.Wave != "" {
			wave = s.Wave
			l.Add(text.Bold.Of("  wave "+wave), text.Plain.Of(": "+text.Count(inWave[wave], "node")))
		}
		line := text.Line{text.Plain.Format("  %3d. %s  ", i+1, text.Fill(s.Node, name))}
		if s.To != "" {
			line = append(line, text.Plain.Of(strings.TrimPrefix(s.From+" → "+s.To+"  ", " ")))
		}
		if s.Reason == "" {
			line = append(line, text.Green.Of("starts now"))
		} else {
			line = append(line, text.Plain.Of(string(s.Reason)))
			if why := string(s.Reason) + s.Message; why != last && s.Message != "" {
				line, last = append(line, text.Plain.Of(": "+s.Message)), why
			}
			if s.At != nil && s.At.After(now) { // Else its start depends on something that is not estimated.
				line = append(line, text.Dim.Of("  starts "+about(s.At.Time, now)))
			}
		}
		l.Add(line...)
	}
	hidden := len(r.Steps) - len(steps)
	l.AddWhen(hidden > 0, text.Dim.Format("       and %d more: --all shows them", hidden))
}

// drawDaemon writes the lines above an ExtendedDaemonSet's nodes: the canary, how many start at once, and which get a first pod.
func (c *previewCommand) drawDaemon(l *text.Lines, r *result) {
	if t := r.Canary; t != nil {
		on := nodes(t.Nodes) + text.When(len(t.Nodes) > 0, " (%s)", c.few(t.Nodes))
		until := "its pods have been ready for " + t.Duration + " and none has restarted for " + t.Calm
		if t.Manual {
			until = "a person validates it"
		}
		l.Add(text.Plain.Of("  canary on " + on + ", until " + until))
	}
	l.AddWhen(r.AtOnceBy != "" && len(r.Steps) > 0, text.Plain.Format("  %s at once (%s)", text.Count(r.AtOnce, "node"), r.AtOnceBy))
	if n := r.Creation; n != nil {
		l.Add(text.Plain.Format("  %s to get a first pod: %d at once, %d more after each %s, at most %d (slow start)",
			text.Count(n.Nodes, "node"), n.Limit, n.Increase, n.Interval, n.Most))
	}
}

// drawSurge writes how machines are added and deleted.
func drawSurge(l *text.Lines, s *view.Surge) {
	if s == nil {
		return
	}
	order := "a machine is added before another is deleted"
	if s.DeletesFirst {
		order = "a machine is deleted before its replacement is added"
	}
	l.Add(text.Plain.Format("  %s (surge %s of each scale set, onFull %s)", order, s.Rule, s.OnFull))
	for _, set := range s.ScaleSets {
		l.Add(text.Plain.Format("  scale set %s: %d machines, %d outdated, at most %d more at once", set.Name, set.Machines, set.Outdated, set.More),
			text.Red.Of(colon(set.Message)))
	}
}

// about formats a future time: near times as a duration, others as a clock time.
func about(t, now time.Time) string {
	if wait := t.Sub(now).Round(time.Second); wait < time.Hour {
		return "in about " + duration.HumanDuration(wait)
	}
	return "at about " + t.UTC().Format("2006-01-02 15:04 UTC")
}

// endText says when the rollout ends.
func endText(r *result, now time.Time) string {
	s, end := r.Schedule, ""
	switch {
	case s == nil && (len(r.Steps) == 0 || r.Problem != ""):
		return ""
	case s == nil:
		return "no turn has been measured yet, so nothing is said about when it ends (--turn supposes how long one takes)"
	case s.Stuck != "":
		end = "does not end by itself: " + text.Count(s.Left, "node") + " left, " + s.Stuck
	case s.End != nil && !s.End.After(now):
		return ""
	case s.End != nil:
		end = "ends " + about(s.End.Time, now)
	}
	return end + "; a turn takes " + duration.HumanDuration(time.Duration(s.TurnSeconds)*time.Second) +
		text.When(len(s.Without) > 0, "; not counted: %s", strings.Join(s.Without, ", "))
}

// drawDrains writes what drains would do.
func (c *previewCommand) drawDrains(l *text.Lines, r *result, s *subject) {
	if !s.drains {
		l.Add(text.Plain.Of("  no pod is evicted: the rollout does not drain nodes"))
		return
	}
	blocked := false
	for _, d := range r.Drains {
		if d.Error != "" {
			l.Add(text.Plain.Of("  drain of "), text.Bold.Of(d.Node), text.Red.Of(": "+d.Error))
			continue
		}
		l.Add(text.Plain.Of("  drain of "), text.Bold.Of(d.Node), text.Plain.Format(": %s would go, %d stay", text.Count(len(d.Evict), "pod"), d.Stays))
		for i, name := range d.Evict {
			if i == maxPods && !c.all {
				l.Add(text.Plain.Format("    and %d more", len(d.Evict)-maxPods))
				break
			}
			l.Add(text.Plain.Of("    " + name))
		}
		blocked = blocked || len(d.Refused) > 0 || len(d.Held) > 0
		for _, x := range d.Refused {
			advice := cmp.Or(text.When(x.Field != "", "%s would allow it", x.Field), "no field allows it")
			l.Add(text.Red.Of("    ✗ "+x.Pod+"  "+string(x.Reason)), text.Plain.Of(": it "+x.Message+", and stops the drain; "+advice))
		}
		for _, h := range d.Held {
			l.Add(text.Yellow.Of("    ! "+h.Pod), text.Plain.Of("  held by PodDisruptionBudget "+h.Budget+": "+h.Message))
		}
	}
	l.AddWhen(blocked, text.Plain.Of("  a drain that can't go on "+drainEndText(s)))
}

// maxPods bounds how many pods and nodes are named in one place.
const maxPods = 5

// few returns the names, or the first of them.
func (c *previewCommand) few(names []string) string {
	if c.all {
		return strings.Join(names, ", ")
	}
	return text.Some(maxPods, names, ", ")
}

// drainEndText says what a drain does that can't go on.
func drainEndText(s *subject) string {
	options, _, err := s.drainOptions()
	if err != nil || options.Timeout <= 0 {
		return "is tried again and again (spec.drain.timeout is absent)"
	}
	onTimeout := cmp.Or(options.OnTimeout, drain.HaltOnTimeout)
	return fmt.Sprintf("applies spec.drain.onTimeout (%s) after %s", onTimeout, duration.HumanDuration(options.Timeout))
}
