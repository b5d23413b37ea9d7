// SPDX-License-Identifier: Apache-2.0

package hostupdate

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/kind/hostupdate"
)

// memos keep for each NodeRollout what one look at it can take over from the last. To forget them costs time only.
type memos struct {
	mu  sync.Mutex
	all map[types.NamespacedName]*memo
}

// memo is what is remembered of one NodeRollout.
type memo struct {
	rollout types.UID
	// known is true once before is the revision, and complete whether no host needed it any more, at the end of the last look.
	known, complete bool
	before          string
	// mu guards updated and told while several nodes are written at once.
	mu sync.Mutex
	// updated are nodes whose turn has ended well, until their agents have looked again for updates.
	updated map[types.UID]bool
	// told is what nodes were asked.
	told map[types.UID]question
	// silent are nodes whose agents have not answered, since that was first seen.
	silent map[types.UID]time.Time
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

// asked notes that a host was asked for updates, while this version is the newest that others have to offer.
func (m *memo) asked(t *unit, latest string, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	q := question{latest: latest, again: m.told[t.Node.UID].again}
	if t.again {
		before := t.report
		q.again, q.before, q.node = now, &before, t.Node
	}
	m.told[t.Node.UID] = q
}

func newMemos() *memos { return &memos{all: map[types.NamespacedName]*memo{}} }

// of is the memo of a NodeRollout.
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

// begin makes the memo fit for a NodeRollout and that many nodes.
func (m *memo) begin(w *world, nodes int) {
	if m.rollout != w.rollout.UID {
		m.rollout, m.known, m.updated, m.told, m.silent = w.rollout.UID, false, nil, nil, nil
	}
	if m.updated == nil || len(m.updated) > 2*nodes {
		m.updated = map[types.UID]bool{}
	}
	if m.silent == nil || len(m.silent) > 2*nodes {
		m.silent = map[types.UID]time.Time{}
	}
	if m.told == nil || len(m.told) > 2*nodes {
		m.told = map[types.UID]question{}
	}
}
