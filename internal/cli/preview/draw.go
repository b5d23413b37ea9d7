// SPDX-License-Identifier: Apache-2.0

package preview

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/duration"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cli/text"
	"moult.dev/moult/internal/view"
)

// draw writes what a rollout would do.
func (c *command) draw(l *text.Page, r *result, s *subject, now time.Time) {
	c.head(l, r)
	if r.Problem != "" {
		l.Add(text.Red.Of("  nothing would start: " + r.Problem))
	}
	for i := range r.Failed {
		n := &r.Failed[i]
		l.Add(text.Red.Of("  ✗ "), text.Plain.Of(n.Node+"  "), text.Red.Of(string(n.Reason)), text.Plain.Of("  "+n.Message))
	}
	for i := range r.InTurn {
		n := &r.InTurn[i]
		l.Add(text.Yellow.Of("  ▶ "), text.Plain.Of(n.Node+"  "), text.Yellow.Of(string(n.Phase)), text.Plain.Of("  in its turn"))
	}
	c.daemon(l, r)
	surge(l, r.Surge)
	c.steps(l, r, now)
	c.unfit(l, r)
	if n := len(r.Unlabelled); n > 0 {
		l.Add(text.Plain.Of(fmt.Sprintf("  not looked at: %s (%s), no label names the interface of the host", nodes(n), strings.Join(c.few(r.Unlabelled), ", "))))
	}
	for i := range r.Budgets {
		b := &r.Budgets[i]
		l.Add(text.Plain.Of("  budget " + b.Name + ": " + string(b.State) + ", " + b.Line()))
	}
	if end := when(r, now); end != "" {
		l.Add(text.Plain.Of("  " + end))
	}
	c.drawDrains(l, r, s)
	for _, note := range r.Notes {
		l.Add(text.Dim.Of("  " + note))
	}
}

func (c *command) head(l *text.Page, r *result) {
	head := text.Line{text.Plain.Of(r.Rollout.Kind + " "), text.Bold.Of(r.Rollout.FullName())}
	if r.New {
		head = append(head, text.Plain.Of("  not in the cluster yet"))
	} else if r.Rollout.Version != "" {
		head = append(head, text.Plain.Of("  "+r.Rollout.Version))
	}
	n := &r.Rollout.Counts
	said := fmt.Sprintf("  %s selected", nodes(int(n.Total)))
	for _, part := range []struct {
		n    int32
		what string
	}{{n.Updated, "updated"}, {n.Updating, "in a turn"}, {n.Failed, "failed"}, {r.Rollout.OptedOut, "opted out"}} {
		if part.n > 0 {
			said += fmt.Sprintf(", %d %s", part.n, part.what)
		}
	}
	l.Add(append(head, text.Plain.Of(said))...)
}

func nodes(n int) string {
	if n == 1 {
		return "1 node"
	}
	return fmt.Sprintf("%d nodes", n)
}

// steps writes the nodes in their order, wave by wave. Those that are too many are counted.
func (c *command) steps(l *text.Page, r *result, now time.Time) {
	if len(r.Steps) == 0 && r.Creation != nil {
		return
	}
	if len(r.Steps) == 0 {
		l.Add(text.Green.Of("  no node is to be started"))
		return
	}
	name := 0
	for i := range r.Steps {
		name = max(name, utf8.RuneCountInString(r.Steps[i].Node))
	}
	wave, last, hidden := "", "", 0
	for i := range r.Steps {
		s := &r.Steps[i]
		if !c.all && i >= c.limit {
			hidden++
			continue
		}
		if s.Wave != wave && s.Wave != "" {
			wave = s.Wave
			l.Add(text.Bold.Of("  wave "+wave), text.Plain.Of(ofWave(r.Steps, wave)))
		}
		line := text.Line{text.Plain.Of(fmt.Sprintf("  %3d. %-*s  ", i+1, name, s.Node))}
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
			if s.At != nil && s.At.After(now) { // Else it starts as soon as what is not counted lets it.
				line = append(line, text.Dim.Of("  starts "+about(s.At.Time, now)))
			}
		}
		l.Add(line...)
	}
	if hidden > 0 {
		l.Add(text.Dim.Of(fmt.Sprintf("       and %d more: --all shows them", hidden)))
	}
}

// daemon writes what is to be said of an ExtendedDaemonSet before its nodes: the canary, how many go at once, and who gets a first pod.
func (c *command) daemon(l *text.Page, r *result) {
	if t := r.Canary; t != nil {
		said := fmt.Sprintf("  canary on %s", nodes(len(t.Nodes)))
		if len(t.Nodes) > 0 {
			said += " (" + strings.Join(c.few(t.Nodes), ", ") + ")"
		}
		switch {
		case t.Manual:
			said += ", until somebody validates it"
		default:
			said += ", until its pods have been ready for " + t.Duration + " and none has restarted for " + t.Calm
		}
		l.Add(text.Plain.Of(said))
	}
	if r.AtOnceBy != "" && len(r.Steps) > 0 {
		l.Add(text.Plain.Of(fmt.Sprintf("  %s at once (%s)", nodes(r.AtOnce), r.AtOnceBy)))
	}
	if n := r.Creation; n != nil {
		l.Add(text.Plain.Of(fmt.Sprintf("  %s to get a first pod: %d at once, %d more after each %s, at most %d (slow start)",
			nodes(n.Nodes), n.Limit, n.Increase, n.Interval, n.Most)))
	}
}

// surge writes how machines are added and deleted.
func surge(l *text.Page, s *view.Surge) {
	if s == nil {
		return
	}
	switch {
	case s.DeletesFirst:
		l.Add(text.Plain.Of("  each machine is deleted before the one that takes its place is added (surge 0)"))
	case s.OnFull == v1alpha1.OnFullDeleteFirst:
		l.Add(text.Plain.Of("  a machine is added before another is deleted, surge " + s.Rule + " of each scale set; the other way round where one is full (onFull: DeleteFirst)"))
	default:
		l.Add(text.Plain.Of("  a machine is added before another is deleted, surge " + s.Rule + " of each scale set; where one is full its nodes wait (onFull: Wait)"))
	}
	for i := range s.ScaleSets {
		of := &s.ScaleSets[i]
		said := fmt.Sprintf("  scale set %s: %d machines, %d outdated", of.Name, of.Machines, of.Outdated)
		if !s.DeletesFirst {
			said += fmt.Sprintf(", at most %d more at once", of.More)
		}
		if of.Message != "" {
			l.Add(text.Plain.Of(said), text.Red.Of("; "+of.Message))
			continue
		}
		l.Add(text.Plain.Of(said))
	}
}

// unfit writes on which nodes there would be no pod.
func (c *command) unfit(l *text.Page, r *result) {
	for i := range r.Unfit {
		u := &r.Unfit[i]
		l.Add(text.Plain.Of(fmt.Sprintf("  no pod on %s (%s): %s", nodes(len(u.Nodes)), strings.Join(c.few(u.Nodes), ", "), u.Message)))
	}
}

// about is a time to come: soon by how long that is, later by the clock.
func about(t, now time.Time) string {
	if wait := t.Sub(now).Round(time.Second); wait < time.Hour {
		return "in about " + duration.HumanDuration(wait)
	}
	return "at about " + t.UTC().Format("2006-01-02 15:04 UTC")
}

func ofWave(steps []view.Step, wave string) string {
	n := 0
	for i := range steps {
		if steps[i].Wave == wave {
			n++
		}
	}
	return ": " + nodes(n)
}

// when says when it ends.
func when(r *result, now time.Time) string {
	s := r.Schedule
	if s == nil {
		if len(r.Steps) == 0 || r.Problem != "" {
			return ""
		}
		return "no turn has been measured yet, so nothing is said about when it ends (--turn supposes how long one takes)"
	}
	said := ""
	switch {
	case s.Stuck != "":
		said = fmt.Sprintf("does not end by itself: %s left, %s", nodes(s.Left), s.Stuck)
	case s.End != nil && !s.End.After(now):
		return ""
	case s.End != nil:
		said = "ends " + about(s.End.Time, now)
	}
	said += "; a turn takes " + duration.HumanDuration(time.Duration(s.TurnSeconds)*time.Second)
	if len(s.Without) > 0 {
		said += "; not counted: " + strings.Join(s.Without, ", ")
	}
	return said
}

// drawDrains writes what drains would meet.
func (c *command) drawDrains(l *text.Page, r *result, s *subject) {
	switch {
	case s.eds != nil || len(r.Steps) == 0:
		return
	case s.drains():
	case s.hosts != nil:
		l.Add(text.Plain.Of("  nodes are cordoned; no pod is evicted (spec.drain.disabled)"))
		return
	case s.plan.Spec.Cordon:
		l.Add(text.Plain.Of("  nodes are cordoned; no pod is evicted (spec.drain is absent)"))
		return
	default:
		l.Add(text.Plain.Of("  no pod is evicted (spec.drain is absent)"))
		return
	}
	for i := range r.Drains {
		d := &r.Drains[i]
		if d.Error != "" {
			l.Add(text.Plain.Of("  drain of "), text.Bold.Of(d.Node), text.Red.Of(": "+d.Error))
			continue
		}
		l.Add(text.Plain.Of("  drain of "), text.Bold.Of(d.Node), text.Plain.Of(fmt.Sprintf(": %s would go, %d stay", pods(len(d.Evict)), d.Stays)))
		for _, name := range c.few(d.Evict) {
			l.Add(text.Plain.Of("    " + name))
		}
		for _, x := range d.Refused {
			advice := "no field gives leave"
			if x.Field != "" {
				advice = x.Field + " would give leave"
			}
			l.Add(text.Red.Of("    ✗ "+x.Pod+"  "+string(x.Reason)), text.Plain.Of(": it "+x.Message+", and stops the drain; "+advice))
		}
		for _, h := range d.Held {
			l.Add(text.Yellow.Of("    ! "+h.Pod), text.Plain.Of("  held by PodDisruptionBudget "+h.Budget+": "+h.Message))
		}
	}
	if stops(r.Drains) {
		if s.hosts != nil {
			l.Add(text.Plain.Of("  a drain that can't go on " + hostEnding(s.hosts.Spec.Drain, r.Drains)))
		} else {
			l.Add(text.Plain.Of("  a drain that can't go on " + ending(s.plan.Spec.Drain)))
		}
	}
}

func pods(n int) string {
	if n == 1 {
		return "1 pod"
	}
	return fmt.Sprintf("%d pods", n)
}

// few are the first names, and how many more there are.
func (c *command) few(names []string) []string {
	const some = 5
	if c.all || len(names) <= some {
		return names
	}
	return append(append([]string{}, names[:some]...), fmt.Sprintf("and %d more", len(names)-some))
}

func stops(all []drained) bool {
	for i := range all {
		if len(all[i].Refused)+len(all[i].Held) > 0 {
			return true
		}
	}
	return false
}

// ending says what happens when a drain can't go on.
func ending(d *upgradev1.DrainSpec) string {
	if d.Timeout == nil {
		return "tries until its Job's deadline (spec.drain.timeout is absent)"
	}
	return "after " + d.Timeout.String() + " " + onTimeout(string(d.OnTimeout))
}

// hostEnding says what happens when a drain of a NodeRollout can't go on.
func hostEnding(d *v1alpha1.NodeDrain, drains []drained) string {
	refuses := slices.ContainsFunc(drains, func(d drained) bool { return len(d.Refused) > 0 })
	after := ""
	if refuses {
		after = "fails its node's turn at once where a pod is refused; else "
	}
	if d == nil || d.Timeout == nil {
		return after + "waits (spec.drain.timeout is absent)"
	}
	after += "after " + duration.HumanDuration(d.Timeout.Duration) + " "
	return after + onTimeout(string(cmp.Or(d.OnTimeout, "Halt")))
}

// onTimeout says what happens when the time of a drain is over.
func onTimeout(how string) string {
	switch how {
	case "Halt":
		return "fails its node's turn (spec.drain.onTimeout: Halt)"
	case "Skip":
		return "gives its node back, and the rollout goes on without it (spec.drain.onTimeout: Skip)"
	case "Force":
		return "deletes the pods that are left, past every PodDisruptionBudget (spec.drain.onTimeout: Force)"
	}
	return "fails the attempt (spec.drain.onTimeout is absent)"
}
