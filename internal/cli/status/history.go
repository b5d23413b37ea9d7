// SPDX-License-Identifier: Apache-2.0

package status

import (
	"slices"
	"time"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/view"
)

// history remembers the turns that were seen: an updated node does not tell how long its turn took.
type history struct {
	began map[unit]time.Time
	ended map[unit]turn
}

// unit names one node's part in one rollout.
type unit struct{ kind, namespace, name, node string }

type turn struct {
	at   time.Time
	took time.Duration
}

func newHistory() *history {
	return &history{began: map[unit]time.Time{}, ended: map[unit]turn{}}
}

func unitOf(r *view.Rollout, n *view.Node) unit { return unit{r.Kind, r.Namespace, r.Name, n.Node} }

func nodesOf(r *view.Rollout) []*view.Node {
	var all []*view.Node
	for i := range r.Nodes {
		all = append(all, &r.Nodes[i])
	}
	return all
}

// note looks at the rollouts as they are now.
func (h *history) note(rollouts []view.Rollout, now time.Time) {
	for i := range rollouts {
		r := &rollouts[i]
		for _, n := range nodesOf(r) {
			u := unitOf(r, n)
			began, inTurn := h.began[u]
			switch {
			case n.InTurn() && n.Started != nil:
				h.began[u] = n.Started.Time
				delete(h.ended, u)
			case n.State == v1alpha1.UnitUpdated && inTurn:
				h.ended[u] = turn{at: now, took: max(now.Sub(began), time.Second)}
				delete(h.began, u)
			case n.State == v1alpha1.UnitOutdated:
				delete(h.began, u)
				delete(h.ended, u)
			}
		}
	}
}

// took is how long a node's turn took, or 0 if that was not seen.
func (h *history) took(r *view.Rollout, n *view.Node) time.Duration {
	return h.ended[unitOf(r, n)].took
}

// updatedNodes are the rollout's updated nodes, the last one first.
func (h *history) updatedNodes(r *view.Rollout) []*view.Node {
	updated := slices.DeleteFunc(nodesOf(r), func(n *view.Node) bool { return n.State != v1alpha1.UnitUpdated })
	slices.SortStableFunc(updated, func(a, b *view.Node) int {
		return h.ended[unitOf(r, b)].at.Compare(h.ended[unitOf(r, a)].at)
	})
	return updated
}
