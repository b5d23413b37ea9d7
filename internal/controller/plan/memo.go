// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

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
	// quiet are the nodes that need not be judged again, as long as they have no Jobs, and named the last of each name.
	quiet  map[*corev1.Node]quiet
	named  map[string]*corev1.Node
	judged basis
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

// quiet is how a node was judged that has neither a claim nor a Job of the Plan: for the same Plan it will be judged just so,
// as long as the Node is the same object.
type quiet struct {
	// left is true for a node that is none of the Plan's.
	left    bool
	unit    rollout.Unit
	step    step
	counted bool
}

// basis is what of the Plan a quiet node is judged by.
type basis struct {
	generation int64
	ready      bool
}

// begin makes the memo fit for a Plan and what is to be seen of it.
func (m *memo) begin(w *world, s snapshot) {
	nodes, now := len(s.Objects), basis{w.plan.Generation, w.ready}
	if m.plan != w.plan.UID || m.hash != w.plan.Status.LatestHash || len(m.ranks) > 2*nodes {
		m.plan, m.hash, m.ranks, m.quiet = w.plan.UID, w.plan.Status.LatestHash, make(map[types.UID]uint64, nodes), nil
	}
	if m.quiet == nil || m.judged != now || len(m.quiet) > nodes+nodes/4+100 {
		m.quiet, m.named, m.judged = make(map[*corev1.Node]quiet, nodes), make(map[string]*corev1.Node, nodes), now
	}
	for name, jobs := range s.jobs {
		if len(jobs) > 0 {
			delete(m.quiet, m.named[name])
		}
	}
	if cap(m.turns) < nodes || cap(m.turns) > 4*nodes {
		m.turns, m.units = make([]turn, 0, nodes), make([]rollout.Unit, 0, nodes)
	}
	m.turns, m.units = m.turns[:0], m.units[:0]
}

// rest notes how a node was judged that stays so.
func (m *memo) rest(n *corev1.Node, q quiet) { m.quiet[n], m.named[n.Name] = q, n }

// rank is that of a node for the Plan's revision.
func (m *memo) rank(n *corev1.Node) uint64 {
	rank, ok := m.ranks[n.UID]
	if !ok {
		rank = max(1, rollout.Rank(n.UID, m.plan, m.hash))
		m.ranks[n.UID] = rank
	}
	return rank
}
