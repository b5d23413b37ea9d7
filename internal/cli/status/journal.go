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
	// wide says of each node why it waits, and of each budget who uses it up.
	wide    bool
	history *history
	said    map[unit]string
	note    string
}

func newJournal(out io.Writer, now time.Time, wide bool) *journal {
	return &journal{out: out, began: now, wide: wide, history: newHistory(), said: map[unit]string{}}
}

func (j *journal) show(s *shown, note string, now time.Time) {
	j.history.note(s.rollouts, now)
	if note != j.note && note != "" {
		j.write(now, note)
	}
	j.note = note
	for i := range s.rollouts {
		r := &s.rollouts[i]
		name := strings.ToLower(r.Kind) + " " + r.FullName()
		// What begins is said before its nodes, what is complete after them.
		turned := j.news(unit{r.Kind, r.Namespace, r.Name, ""}, r.Version+" "+string(r.State)+" "+r.Message)
		if turned && r.State != view.Complete {
			j.write(now, name, headline(r))
		}
		for _, l := range steering(r, time.Time{}) {
			if what, said := topic(l), plainly(l); j.news(unit{r.Kind, r.Namespace, r.Name, "/" + what}, said) {
				j.write(now, name, said)
			}
		}
		// Those whose turn is over come first: they made room for the others.
		for _, n := range slices.Concat(j.history.latestFirst(r), others(r)) {
			said := j.node(r, n)
			// An updated node is news only if its turn was seen.
			seen := n.State != v1alpha1.UnitUpdated || j.history.took(r, n) > 0
			if j.news(unitOf(r, n), said) && said != "" && seen {
				j.write(now, name, n.Node, said)
			}
		}
		if said := j.waits(r); j.news(unit{r.Kind, r.Namespace, r.Name, "/waits"}, said) && said != "" {
			j.write(now, name, said)
		}
		if turned && r.State == view.Complete {
			j.write(now, name, headline(r))
		}
	}
	for i := range s.budgets {
		j.budget(&s.budgets[i], now)
	}
}

// budget says how a budget stands, where that has changed.
func (j *journal) budget(b *view.Budget, now time.Time) {
	said := string(b.State) + ", " + b.Line()
	for i := range b.BlockedBy {
		block := b.BlockedBy[i]
		block.Since = nil
		said += "; " + blocked(&block, now)
	}
	if j.wide {
		for i := range b.Holders {
			said += "; " + b.Holders[i].Node + " " + string(b.Holders[i].Cause)
		}
	}
	if j.news(unit{kind: "/budget", name: b.Name}, said) {
		j.write(now, "budget "+b.Name, said)
	}
}

// topic is what a line about a rollout is about.
func topic(l line) string {
	word, _, _ := strings.Cut(strings.TrimSpace(l[0].Text), " ")
	return word
}

// plainly is a line without its looks, and without what to do about it.
func plainly(l line) string {
	var all strings.Builder
	for _, p := range l {
		if p.Style != dim {
			all.WriteString(p.Text)
		}
	}
	return strings.TrimSpace(all.String())
}

// others are the rollout's nodes that are not updated.
func others(r *view.Rollout) []*view.Node {
	var all []*view.Node
	for i := range r.Nodes {
		if r.Nodes[i].State != v1alpha1.UnitUpdated {
			all = append(all, &r.Nodes[i])
		}
	}
	return all
}

// node says how a node stands. Why nodes wait is said of all at once, but where all is shown.
func (j *journal) node(r *view.Rollout, n *view.Node) string {
	var parts []string
	switch n.State {
	case v1alpha1.UnitUpdating, v1alpha1.UnitSoaking:
		parts = append(parts, string(n.Phase))
	case v1alpha1.UnitFailed:
		parts = append(parts, "Failed", string(n.Reason))
	case v1alpha1.UnitUpdated:
		said := "Updated"
		if took := j.history.took(r, n); took > 0 {
			said += " in " + duration.HumanDuration(took)
		}
		return said
	case v1alpha1.UnitOutdated:
		// Its message goes with the other nodes, and would be another line of each whenever one of them moves.
		if j.wide && n.Reason != "" {
			return "waits: " + string(n.Reason)
		}
		return ""
	}
	return strings.Join(append(parts, nonempty(n.Message)...), ": ")
}

// waits says why nodes wait, if they do and each does not say so for itself.
func (j *journal) waits(r *view.Rollout) string {
	if j.wide {
		return ""
	}
	var reasons []string
	for i := range r.Nodes {
		if n := &r.Nodes[i]; n.State == v1alpha1.UnitOutdated && n.Reason != "" && !slices.Contains(reasons, string(n.Reason)) {
			reasons = append(reasons, string(n.Reason))
		}
	}
	if len(reasons) == 0 {
		return ""
	}
	return "nodes wait: " + strings.Join(reasons, ", ")
}

func headline(r *view.Rollout) string {
	said := strings.TrimSpace(r.Version + " " + string(r.State))
	if r.Counts.Total > 0 && r.State != view.Pending {
		said += fmt.Sprintf(", %d of %d updated", r.Counts.Updated, r.Counts.Total)
	}
	return strings.Join(append([]string{said}, nonempty(r.Message)...), ": ")
}

// news reports whether this has not been said yet.
func (j *journal) news(of unit, said string) bool {
	last, known := j.said[of]
	j.said[of] = said
	return !known || last != said
}

func (j *journal) write(now time.Time, parts ...string) {
	fmt.Fprintf(j.out, "%6.1fs  %s\n", now.Sub(j.began).Seconds(), text.Clean(strings.Join(parts, "  ")))
}

func (*journal) close() {}
