// SPDX-License-Identifier: Apache-2.0

package hostupdate

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/internal/turn"
)

// of names the turn.
func (t *unit) of(w *world) turn.Of {
	return turn.Of{Rollout: client.ObjectKeyFromObject(w.rollout), Node: t.Node.Name, Turn: t.Claim.Turn}
}

// podsChanged wakes the rollout whose turn the node is in.
func (c *Controller) podsChanged(node string) {
	if rollout, ok := c.works.Changed(node); ok {
		c.woken.Ring(rollout)
	}
}

// Agents that could not find out what their host has to offer are asked again after firstAsk, and then more and more seldom.
const (
	firstAsk = time.Minute
	lastAsk  = 30 * time.Minute
)

// askAgain is how often at most a host is asked again because others have a release to offer that it has said nothing of. Agents look by
// themselves that often; and what one of them says, true or not, must not keep the operator writing to the nodes of all others.
const askAgain = 30 * time.Minute

// backoffs remembers when agents are asked again. To forget it costs one question too early.
type backoffs struct {
	mu  sync.Mutex
	all map[types.UID]backoff
}

type backoff struct {
	wait time.Duration
	at   time.Time // zero once it was asked
}

func newBackoffs() *backoffs { return &backoffs{all: map[types.UID]backoff{}} }

// failed is when the agent of a node is asked again that has failed.
func (b *backoffs) failed(node types.UID, now time.Time) time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	last := b.all[node]
	if last.at.IsZero() {
		last.wait = min(max(2*last.wait, firstAsk), lastAsk)
		last.at = now.Add(last.wait)
		b.all[node] = last
	}
	return last.at
}

// asked notes that it was asked again.
func (b *backoffs) asked(node types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if last, ok := b.all[node]; ok {
		last.at = time.Time{}
		b.all[node] = last
	}
}

// well notes that it has not failed.
func (b *backoffs) well(node types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.all, node)
}
