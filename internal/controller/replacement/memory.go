// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// memory is what this process remembers of each NodeRollout.
type memory struct {
	mu  sync.Mutex
	all map[types.NamespacedName]*memo
}

// memo is used by one reconcile at a time: a NodeRollout has no two.
type memo struct {
	uid types.UID
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
	scaleSet string
	known    bool
	asked    time.Time
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

func (m *memory) forget(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.all, key)
}

// reset forgets what was read from another cloud.
func (m *memo) reset(provider string) {
	m.provider, m.places, m.sets, m.trouble = provider, map[string]place{}, map[string]*set{}, trouble{}
}
