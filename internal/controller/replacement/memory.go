// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// memo is what this process remembers of a NodeRollout. A NodeRollout has only one reconcile at a time.
type memo struct {
	uid types.UID
	// places are the scale sets of machines, by provider id, or "" for a machine of none. found is when the cloud was last asked for them.
	places map[string]string
	found  time.Time
	sets   map[string]*set
	// trouble delays the next attempt to find scale sets.
	trouble trouble
	// left are the nodes of turns that have left the control plane.
	left map[string]bool
}

// memo returns a NodeRollout's memo.
func (c *Controller) memo(key types.NamespacedName, uid types.UID) *memo {
	known, _ := c.memos.Load(key)
	if m, ok := known.(*memo); ok && m.uid == uid {
		return m
	}
	m := &memo{uid: uid, places: map[string]string{}, sets: map[string]*set{}, left: map[string]bool{}}
	c.memos.Store(key, m)
	return m
}
