// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"moult.dev/moult/internal/cloud"
	machine "moult.dev/moult/internal/kind/replacement"
)

// memory is what this process remembers of each NodeRollout. To forget it costs another look.
type memory struct {
	mu  sync.Mutex
	all map[types.NamespacedName]*memo
}

// memo is used by one reconcile at a time: a NodeRollout has no two.
type memo struct {
	uid types.UID
	// written is the NodeRollout as this process has written it last. The cache may not show that yet, and a status is the memory of turns: what is
	// decided on an older one would be decided twice.
	written *unstructured.Unstructured
	// provider identifies the cloud that the rest was asked of.
	provider string
	// places are where machines are, by provider id, as the cloud has said, and when it was asked last about those that it does not know.
	places map[string]place
	sets   map[string]*set
	// trouble keeps the cloud from being asked which sets there are.
	trouble trouble
	// drained and left are turns whose node is drained, and has left the control plane, by their keys, and deleted when their machine was.
	drained, left map[string]bool
	deleted       map[string]time.Time
	// impossible is what an Event has said of why images can't be put back.
	impossible string
}

type place struct {
	cloud.Location
	known bool
	asked time.Time
}

func newMemory() *memory { return &memory{all: map[types.NamespacedName]*memo{}} }

// of is the memo of a NodeRollout.
func (m *memory) of(key types.NamespacedName, uid types.UID) *memo {
	m.mu.Lock()
	defer m.mu.Unlock()
	if known := m.all[key]; known != nil && known.uid == uid {
		return known
	}
	next := &memo{uid: uid, drained: map[string]bool{}, left: map[string]bool{}, deleted: map[string]time.Time{}}
	next.reset("")
	m.all[key] = next
	return next
}

// newest is a NodeRollout as it is stored, or as this process has written it since. It must not be changed.
func (m *memory) newest(key types.NamespacedName, stored *unstructured.Unstructured) *unstructured.Unstructured {
	m.mu.Lock()
	defer m.mu.Unlock()
	known := m.all[key]
	if known == nil || known.uid != stored.GetUID() || known.written == nil {
		return stored
	}
	if order, err := resourceversion.CompareResourceVersion(stored.GetResourceVersion(), known.written.GetResourceVersion()); err != nil || order >= 0 {
		known.written = nil
		return stored
	}
	return known.written
}

// wrote notes a NodeRollout as this process has just written it.
func (m *memory) wrote(memo *memo, stored *unstructured.Unstructured) {
	m.mu.Lock()
	defer m.mu.Unlock()
	memo.written = stored.DeepCopy()
}

func (m *memory) forget(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.all, key)
}

// reset forgets what a cloud has said that is not asked any more.
func (m *memo) reset(provider string) {
	m.provider, m.places, m.sets, m.trouble = provider, map[string]place{}, map[string]*set{}, trouble{}
}

// keep forgets what is remembered of turns that are over.
func (m *memo) keep(turns []*machine.Turn) {
	live := map[string]bool{}
	for _, t := range turns {
		if !t.Over {
			live[t.Key(false)], live[t.Key(true)] = true, true
		}
	}
	over := func(key string) bool { return !live[key] }
	maps.DeleteFunc(m.drained, func(key string, _ bool) bool { return over(key) })
	maps.DeleteFunc(m.left, func(key string, _ bool) bool { return over(key) })
	maps.DeleteFunc(m.deleted, func(key string, _ time.Time) bool { return over(key) })
}
