// SPDX-License-Identifier: Apache-2.0

package moult

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cli/text"
	"moult.dev/moult/internal/view"
)

// journal writes each change as a line, for logs.
type journal struct {
	out   io.Writer
	began time.Time
	// wide adds each node's reason to wait, and the unavailable nodes of budgets.
	wide bool
	// written is the last news of each subject.
	written map[string]string
}

func newJournal(out io.Writer, now time.Time, wide bool) *journal {
	return &journal{out: out, began: now, wide: wide, written: map[string]string{}}
}

func (j *journal) show(s *shown, note string, now time.Time) {
	j.write(now, "note", note, note)
	for i := range s.rollouts {
		j.rollout(&s.rollouts[i], now)
	}
	for i := range s.budgets {
		b := &s.budgets[i]
		parts := []string{string(b.State) + ", " + b.Line()}
		for i := range b.BlockedBy {
			parts = append(parts, blockText(&b.BlockedBy[i], time.Time{}))
		}
		if j.wide {
			for i := range b.Holders {
				parts = append(parts, b.Holders[i].Node+" "+string(b.Holders[i].Cause))
			}
		}
		said := strings.Join(parts, "; ")
		j.write(now, "budget "+b.Name, said, "budget "+b.Name, said)
	}
}

func (*journal) close() {}

// write writes the parts as a line, if news differs from the subject's last.
func (j *journal) write(now time.Time, subject, news string, parts ...string) {
	last := j.written[subject]
	if j.written[subject] = news; news != "" && news != last {
		fmt.Fprintf(j.out, "%6.1fs  %s\n", now.Sub(j.began).Seconds(), text.Clean(strings.Join(parts, "  ")))
	}
}

func (j *journal) rollout(r *view.Rollout, now time.Time) {
	name := strings.ToLower(r.Kind) + " " + r.FullName()
	for line := range strings.Lines(string(drawSteering(r, time.Time{}).Text(0, false))) {
		said := strings.TrimSpace(line)
		topic, _, _ := strings.Cut(said, " ")
		j.write(now, name+"/"+topic, said, name, said)
	}
	for _, n := range view.Needs([]view.Rollout{*r}, nil) {
		// The other lines say the rest.
		if topic, _, _ := strings.Cut(n.Message, " "); topic == "halted:" || topic == "canary" {
			j.write(now, name+"/"+topic, n.Message, name, n.Message)
		}
	}
	var waits []string
	for i := range r.Nodes {
		n := &r.Nodes[i]
		subject, said := name+" "+n.Node, j.node(n)
		if _, known := j.written[subject]; !known && n.State == v1alpha1.UnitUpdated {
			j.written[subject] = said // Record, don't write.
		}
		j.write(now, subject, said, name, n.Node, said)
		if n.State == v1alpha1.UnitOutdated && n.Reason != "" && !slices.Contains(waits, string(n.Reason)) {
			waits = append(waits, string(n.Reason))
		}
	}
	if said := strings.Join(waits, ", "); !j.wide {
		j.write(now, name+"/waits", said, name, "nodes wait: "+said)
	}
	j.write(now, name, r.Version+" "+string(r.State)+" "+r.Message, name, headline(r))
}

// node says what a node does. Only a wide journal shows the reason to wait, without its message, which changes too often.
func (j *journal) node(n *view.Node) string {
	switch {
	case n.InTurn():
		return text.JoinNonEmpty(": ", string(n.Phase), n.Message)
	case n.State == v1alpha1.UnitOutdated && j.wide && n.Reason != "":
		return "waits: " + string(n.Reason)
	case n.State == v1alpha1.UnitOutdated:
		return ""
	case n.State == v1alpha1.UnitUpdated:
		return string(n.State)
	}
	return text.JoinNonEmpty(": ", string(n.State), string(n.Reason), n.Message)
}

func headline(r *view.Rollout) string {
	counts := text.When(r.Counts.Total > 0 && r.State != view.Pending, ", %d of %d updated", r.Counts.Updated, r.Counts.Total)
	return strings.TrimSpace(r.Version+" "+string(r.State)) + counts + colon(r.Message)
}
