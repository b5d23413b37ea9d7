// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"moult.dev/moult/internal/cloud"
)

// memory is what this process remembers of each NodeRollout.
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
	// provider identifies the cloud that the rest was read from.
	provider string
	// places are where machines are, by provider id, and when the cloud was asked last about those that it does not know.
	places map[string]place
	sets   map[string]*set
	// trouble delays the next attempt to find scale sets.
	trouble trouble
	// left are the nodes of turns that have left the control plane.
	left map[string]bool
	// impossible is the last reason, in an Event, why images can't be put back.
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
	known := m.all[key]
	if known == nil || known.uid != uid {
		known = &memo{uid: uid, left: map[string]bool{}}
		known.reset("")
		m.all[key] = known
	}
	return known
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

// reset forgets what was read from another cloud.
func (m *memo) reset(provider string) {
	m.provider, m.places, m.sets, m.trouble = provider, map[string]place{}, map[string]*set{}, trouble{}
}
