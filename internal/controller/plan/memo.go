// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/internal/rollout"
)

// memos keep for each Plan what one look at it can take over from the last. To forget them costs time only.
type memos struct {
	mu  sync.Mutex
	all map[types.NamespacedName]*memo
}

// memo is used by one reconcile at a time: a Plan has no two.
type memo struct {
	plan  types.UID
	hash  string
	ranks map[types.UID]uint64
	// turns and units are memory for as many as there were last.
	turns []turn
	units []rollout.Unit
}

func newMemos() *memos { return &memos{all: map[types.NamespacedName]*memo{}} }

// of is the memo of a Plan.
func (m *memos) of(key types.NamespacedName) *memo {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.all[key] == nil {
		m.all[key] = &memo{}
	}
	return m.all[key]
}

func (m *memos) forget(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.all, key)
}

// begin makes the memo fit for a Plan and so many nodes.
func (m *memo) begin(p *upgradev1.Plan, nodes int) {
	if m.plan != p.UID || m.hash != p.Status.LatestHash || len(m.ranks) > 2*nodes {
		m.plan, m.hash, m.ranks = p.UID, p.Status.LatestHash, make(map[types.UID]uint64, nodes)
	}
	if cap(m.turns) < nodes || cap(m.turns) > 4*nodes {
		m.turns, m.units = make([]turn, 0, nodes), make([]rollout.Unit, 0, nodes)
	}
	m.turns, m.units = m.turns[:0], m.units[:0]
}

// rank is that of a node for the Plan's revision.
func (m *memo) rank(n *corev1.Node) uint64 {
	rank, ok := m.ranks[n.UID]
	if !ok {
		rank = max(1, rollout.Rank(n.UID, m.plan, m.hash))
		m.ranks[n.UID] = rank
	}
	return rank
}
