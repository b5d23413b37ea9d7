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
	"moult.dev/moult/internal/view"
)

// journal writes each change as a line, for logs.
type journal struct {
	out     io.Writer
	began   time.Time
	history *history
	said    map[unit]string
	note    string
}

func newJournal(out io.Writer, now time.Time) *journal {
	return &journal{out: out, began: now, history: newHistory(), said: map[unit]string{}}
}

func (j *journal) show(rollouts []view.Rollout, note string, now time.Time) {
	j.history.note(rollouts, now)
	if note != j.note && note != "" {
		j.write(now, note)
	}
	j.note = note
	for i := range rollouts {
		r := &rollouts[i]
		name := fmt.Sprintf("%s %s/%s", strings.ToLower(r.Kind), r.Namespace, r.Name)
		// What begins is said before its nodes, what is complete after them.
		turned := j.news(unit{r.Kind, r.Namespace, r.Name, ""}, r.Version+" "+string(r.State)+" "+r.Message)
		if turned && r.State != view.Complete {
			j.write(now, name, headline(r))
		}
		// Those whose turn is over come first: they made room for the others.
		for _, n := range slices.Concat(j.history.latestFirst(r), others(r)) {
			text := j.node(r, n)
			// An updated node is news only if its turn was seen.
			seen := n.State != v1alpha1.UnitUpdated || j.history.took(r, n) > 0
			if j.news(unitOf(r, n), text) && text != "" && seen {
				j.write(now, name, n.Node, text)
			}
		}
		if text := waits(r); j.news(unit{r.Kind, r.Namespace, r.Name, "/waits"}, text) && text != "" {
			j.write(now, name, text)
		}
		if turned && r.State == view.Complete {
			j.write(now, name, headline(r))
		}
	}
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

// node says how a node stands. What waits is said of all at once.
func (j *journal) node(r *view.Rollout, n *view.Node) string {
	var parts []string
	switch n.State {
	case v1alpha1.UnitUpdating, v1alpha1.UnitSoaking:
		parts = append(parts, string(n.Phase))
	case v1alpha1.UnitFailed:
		parts = append(parts, "Failed", string(n.Reason))
	case v1alpha1.UnitUpdated:
		text := "Updated"
		if took := j.history.took(r, n); took > 0 {
			text += " in " + duration.HumanDuration(took)
		}
		return text
	case v1alpha1.UnitOutdated:
		return ""
	}
	return strings.Join(append(parts, nonempty(n.Message)...), ": ")
}

// waits says why nodes wait, if they do.
func waits(r *view.Rollout) string {
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
	text := strings.TrimSpace(r.Version + " " + string(r.State))
	if r.Counts.Total > 0 && r.State != view.Pending {
		text += fmt.Sprintf(", %d of %d updated", r.Counts.Updated, r.Counts.Total)
	}
	return strings.Join(append([]string{text}, nonempty(r.Message)...), ": ")
}

// news reports whether this has not been said yet.
func (j *journal) news(of unit, text string) bool {
	last, known := j.said[of]
	j.said[of] = text
	return !known || last != text
}

func (j *journal) write(now time.Time, parts ...string) {
	fmt.Fprintf(j.out, "%6.1fs  %s\n", now.Sub(j.began).Seconds(), clean(strings.Join(parts, "  ")))
}

func (*journal) close() {}
