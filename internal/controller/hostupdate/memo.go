// SPDX-License-Identifier: Apache-2.0

package hostupdate

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/hostupdate"
	"moult.dev/moult/internal/rollout"
)

// memos keep for each NodeRollout what one look at it can take over from the last. To forget them costs time only.
type memos struct {
	mu  sync.Mutex
	all map[types.NamespacedName]*memo
}

// memo is used by one reconcile at a time: a NodeRollout has no two.
type memo struct {
	basis basis
	// hosts is what each Node told of its host: the cache replaces an object that changes.
	hosts map[*corev1.Node]*sight
	// known is true once before is the revision, and complete whether no host needed it any more, at the end of the last look.
	known, complete bool
	before          string
	// ranks are those for a revision.
	revision string
	ranks    map[types.UID]uint64
	// updated are nodes whose turn has ended well, until their agents have looked again for updates.
	updated map[types.UID]bool
	// told is what nodes were asked.
	told map[types.UID]question
	// silent are nodes whose agents have not answered, since that was first seen.
	silent map[types.UID]time.Time
	// turns and units are memory for as many as there were last.
	turns []unit
	units []rollout.Unit
}

// basis is what of the NodeRollout a host's node is selected by.
type basis struct {
	rollout    types.UID
	generation int64
	ready      bool
}

// sight is what a Node tells of its host, and whether the rollout selects it.
type sight struct {
	report   hostupdate.Report
	speaks   bool
	selected bool
}

// question is what a host was asked last.
type question struct {
	// latest is the version that others had to offer when it was asked last, and again when it was last asked for that alone.
	latest string
	again  time.Time
	// before is what it had said until then, and node where.
	before *hostupdate.Report
	node   *corev1.Node
}

// unanswered is what a host had said that was asked again for what others have to offer, and has not answered; nil of any other.
func (m *memo) unanswered(t *unit) *hostupdate.Report {
	told := m.told[t.Node.UID]
	b, r := told.before, &t.report
	switch {
	case b == nil, told.node == t.Node: // The question is not to be seen yet.
		return nil
	case t.Claim == nil && r.Wanted == v1alpha1.HostActionStabilize && !r.Fresh() && !r.Answers(v1alpha1.HostActionStabilize) &&
		r.Version == b.Version && r.BootID == b.BootID && r.Protocol == b.Protocol:
		return b
	}
	told.before, told.node = nil, nil
	m.told[t.Node.UID] = told
	return nil
}

func newMemos() *memos { return &memos{all: map[types.NamespacedName]*memo{}} }

// of is the memo of a NodeRollout.
func (m *memos) of(key types.NamespacedName) *memo {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.all[key] == nil {
		m.all[key] = &memo{updated: map[types.UID]bool{}}
	}
	return m.all[key]
}

func (m *memos) forget(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.all, key)
}

// begin makes the memo fit for a NodeRollout and so many nodes.
func (m *memo) begin(w *world, nodes int) {
	now := basis{w.rollout.UID, w.rollout.Generation, w.ready}
	if m.basis.rollout != now.rollout {
		m.ranks, m.updated, m.known, m.told, m.silent = nil, map[types.UID]bool{}, false, nil, nil
	}
	if m.hosts == nil || m.basis != now || len(m.hosts) > nodes+nodes/4+100 {
		m.hosts, m.basis = make(map[*corev1.Node]*sight, nodes), now
	}
	if len(m.updated) > 2*nodes {
		m.updated = map[types.UID]bool{}
	}
	if m.silent == nil || len(m.silent) > 2*nodes {
		m.silent = map[types.UID]time.Time{}
	}
	if m.told == nil || len(m.told) > 2*nodes {
		m.told = map[types.UID]question{}
	}
	if cap(m.turns) < nodes || cap(m.turns) > 4*nodes {
		m.turns, m.units = make([]unit, 0, nodes), make([]rollout.Unit, 0, nodes)
	}
	m.turns, m.units = m.turns[:0], m.units[:0]
}

// rank is that of a node for what the rollout brings its nodes to.
func (m *memo) rank(w *world, n *corev1.Node) uint64 {
	if m.ranks == nil || m.revision != w.revision || len(m.ranks) > 2*cap(m.turns)+100 {
		m.ranks, m.revision = map[types.UID]uint64{}, w.revision
	}
	rank, ok := m.ranks[n.UID]
	if !ok {
		rank = max(1, rollout.Rank(n.UID, w.rollout.UID, w.revision))
		m.ranks[n.UID] = rank
	}
	return rank
}
