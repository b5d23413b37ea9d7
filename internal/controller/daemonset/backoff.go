// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Pods that end are deleted at once, and then more and more seldom on the same node, as ExtendedDaemonSet does it.
const (
	firstFailure = 10 * time.Second
	lastFailure  = 15 * time.Minute
)

// backoffs say when a pod that has ended may be deleted, so that another takes its place.
type backoffs struct {
	mu    sync.Mutex
	nodes map[place]*endings
}

type place struct {
	eds  types.NamespacedName
	node string
}

// endings are those of pods on one node.
type endings struct {
	pod   types.UID
	until time.Time
	delay time.Duration
}

func newBackoffs() *backoffs { return &backoffs{nodes: map[place]*endings{}} }

// until is when a pod that has ended may be deleted.
func (b *backoffs) until(pod types.UID, at place, now time.Time) time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.nodes[at]
	switch {
	case e != nil && e.pod == pod:
		return e.until
	case e == nil || now.Sub(e.until) > 2*lastFailure:
		b.prune(now)
		e = &endings{pod: pod, until: now}
		b.nodes[at] = e
	default:
		e.delay = min(max(firstFailure, 2*e.delay), lastFailure)
		e.pod, e.until = pod, now.Add(e.delay)
	}
	return e.until
}

// prune drops what is too old to count.
func (b *backoffs) prune(now time.Time) {
	for at, e := range b.nodes {
		if now.Sub(e.until) > 2*lastFailure {
			delete(b.nodes, at)
		}
	}
}
