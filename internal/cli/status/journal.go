// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cli/text"
	"moult.dev/moult/internal/view"
)

// journal writes each change as a line, for logs.
type journal struct {
	out   io.Writer
	began time.Time
	// wide gives each node its own reason to wait, and names the nodes that use up a budget.
	wide    bool
	history *history
	written map[unit]string
	note    string
}

func newJournal(out io.Writer, now time.Time, wide bool) *journal {
	return &journal{out: out, began: now, wide: wide, history: newHistory(), written: map[unit]string{}}
}

func (j *journal) show(s *shown, note string, now time.Time) {
	j.history.note(s.rollouts, now)
	if note != j.note && note != "" {
		j.write(now, note)
	}
	j.note = note
	for i := range s.rollouts {
		j.rollout(&s.rollouts[i], now)
	}
	for i := range s.budgets {
		j.budget(&s.budgets[i], now)
	}
}

func (j *journal) rollout(r *view.Rollout, now time.Time) {
	name := strings.ToLower(r.Kind) + " " + r.FullName()
	about := func(what string) unit { return unit{r.Kind, r.Namespace, r.Name, what} }
	// What begins is said before its nodes, what is complete after them.
	turned := j.isNew(about(""), r.Version+" "+string(r.State)+" "+r.Message)
	if turned && r.State != view.Complete {
		j.write(now, name, headline(r))
	}
	for _, l := range drawSteering(r, time.Time{}) {
		topic, _, _ := strings.Cut(strings.TrimSpace(l[0].Text), " ")
		if said := withoutHints(l); j.isNew(about("/"+topic), said) {
			j.write(now, name, said)
		}
	}
	// Those whose turn is over come first: they made room for the others.
	notUpdated := slices.DeleteFunc(nodesOf(r), func(n *view.Node) bool { return n.State == v1alpha1.UnitUpdated })
	for _, n := range slices.Concat(j.history.updatedNodes(r), notUpdated) {
		said := j.node(r, n)
		// An updated node is news only if its turn was seen.
		seen := n.State != v1alpha1.UnitUpdated || j.history.took(r, n) > 0
		if j.isNew(about(n.Node), said) && said != "" && seen {
			j.write(now, name, n.Node, said)
		}
	}
	if said := j.reasons(r); j.isNew(about("/waits"), said) && said != "" {
		j.write(now, name, said)
	}
	if turned && r.State == view.Complete {
		j.write(now, name, headline(r))
	}
}

// budget writes the state of a budget, where that has changed.
func (j *journal) budget(b *view.Budget, now time.Time) {
	parts := []string{string(b.State) + ", " + b.Line()}
	for _, block := range b.BlockedBy {
		block.Since = nil
		parts = append(parts, blockText(&block, now))
	}
	if j.wide {
		for i := range b.Holders {
			parts = append(parts, b.Holders[i].Node+" "+string(b.Holders[i].Cause))
		}
	}
	if said := strings.Join(parts, "; "); j.isNew(unit{kind: "/budget", name: b.Name}, said) {
		j.write(now, "budget "+b.Name, said)
	}
}

// withoutHints is the text of a line without the command that helps.
func withoutHints(l text.Line) string {
	var all strings.Builder
	for _, p := range l {
		if p.Style != text.Dim {
			all.WriteString(p.Text)
		}
	}
	return strings.TrimSpace(all.String())
}

// node says what a node does. Why nodes wait is said of all at once, but where all is shown.
func (j *journal) node(r *view.Rollout, n *view.Node) string {
	switch n.State {
	case v1alpha1.UnitUpdating, v1alpha1.UnitSoaking:
		return text.JoinSet(": ", string(n.Phase), n.Message)
	case v1alpha1.UnitFailed:
		return text.JoinSet(": ", "Failed", string(n.Reason), n.Message)
	case v1alpha1.UnitUpdated:
		if took := j.history.took(r, n); took > 0 {
			return "Updated in " + duration.HumanDuration(took)
		}
		return "Updated"
	case v1alpha1.UnitOutdated:
		// Its message goes with the other nodes, and would be another line of each whenever one of them moves.
		if j.wide && n.Reason != "" {
			return "waits: " + string(n.Reason)
		}
	}
	return ""
}

// reasons says why nodes wait, if each does not say so for itself.
func (j *journal) reasons(r *view.Rollout) string {
	var all []string
	for _, n := range r.Nodes {
		if !j.wide && n.State == v1alpha1.UnitOutdated && n.Reason != "" && !slices.Contains(all, string(n.Reason)) {
			all = append(all, string(n.Reason))
		}
	}
	if len(all) == 0 {
		return ""
	}
	return "nodes wait: " + strings.Join(all, ", ")
}

func headline(r *view.Rollout) string {
	said := strings.TrimSpace(r.Version + " " + string(r.State))
	if r.Counts.Total > 0 && r.State != view.Pending {
		said += fmt.Sprintf(", %d of %d updated", r.Counts.Updated, r.Counts.Total)
	}
	return text.JoinSet(": ", said, r.Message)
}

// isNew reports whether this has not been said yet.
func (j *journal) isNew(about unit, said string) bool {
	last, known := j.written[about]
	j.written[about] = said
	return !known || last != said
}

func (j *journal) write(now time.Time, parts ...string) {
	fmt.Fprintf(j.out, "%6.1fs  %s\n", now.Sub(j.began).Seconds(), text.Clean(strings.Join(parts, "  ")))
}

func (*journal) close() {}
