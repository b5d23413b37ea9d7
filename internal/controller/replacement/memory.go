// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// memo is what this process remembers of a NodeRollout. A NodeRollout has only one reconcile at a time.
type memo struct {
	uid types.UID
	// provider identifies the cloud that the rest was read from.
	provider string
	// places are where machines are, by provider id, and when the cloud was last asked about unknown machines.
	places map[string]place
	sets   map[string]*set
	// trouble delays the next attempt to find scale sets.
	trouble trouble
	// left are the nodes of turns that have left the control plane.
	left map[string]bool
	// impossible is the reason in the last Event that images can't be restored.
	impossible string
}

type place struct {
	scaleSet string
	known    bool
	asked    time.Time
}

// memo returns a NodeRollout's memo.
func (t *tools) memo(key types.NamespacedName, uid types.UID) *memo {
	if known, ok := t.memos.Load(key); ok {
		if m, ok := known.(*memo); ok && m.uid == uid {
			return m
		}
	}
	m := &memo{uid: uid, left: map[string]bool{}}
	m.reset("")
	t.memos.Store(key, m)
	return m
}

// reset forgets what was read from another cloud.
func (m *memo) reset(provider string) {
	m.provider, m.places, m.sets, m.trouble = provider, map[string]place{}, map[string]*set{}, trouble{}
}
