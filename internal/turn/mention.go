// SPDX-License-Identifier: Apache-2.0

package turn

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"moult.dev/moult/internal/events"
)

// mentions holds the Events to emit with the next status of each rollout, and the nodes that each names. If this memory is lost, these Events
// are not emitted.
type mentions struct {
	mu   sync.Mutex
	next map[types.UID]map[events.Event][]string
}

// Mention keeps an Event about a node for the next status. All nodes with the same Event share one, which ends with their names.
func (p *Pass[T]) Mention(e events.Event, node string) {
	p.mentions.mu.Lock()
	defer p.mentions.mu.Unlock()
	if p.mentions.next == nil {
		p.mentions.next = map[types.UID]map[events.Event][]string{}
	}
	if p.mentions.next[p.UID] == nil {
		p.mentions.next[p.UID] = map[events.Event][]string{}
	}
	e.Object = nil // It differs from pass to pass.
	p.mentions.next[p.UID][e] = append(p.mentions.next[p.UID][e], node)
}

// Mentioned returns the Events of Mention since its last call, about the rollout.
func (p *Pass[T]) Mentioned(rollout runtime.Object) (all []events.Event) {
	p.mentions.mu.Lock()
	next := p.mentions.next[p.UID]
	delete(p.mentions.next, p.UID)
	p.mentions.mu.Unlock()
	byMessage := func(a, b events.Event) int { return strings.Compare(a.Reason+a.Message, b.Reason+b.Message) }
	for _, e := range slices.SortedFunc(maps.Keys(next), byMessage) {
		all = append(all, e.Naming(rollout, next[e]))
	}
	return all
}
