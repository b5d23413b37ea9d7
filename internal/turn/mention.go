// SPDX-License-Identifier: Apache-2.0

package turn

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"moult.dev/moult/internal/events"
)

// mentionEvery is the least time between the Events of a rollout that name nodes, while turns are in progress. More would cost requests for each node.
const mentionEvery = 10 * time.Second

// mentions holds the next Events of each rollout that name nodes, and the nodes that each names. If this memory is lost, these Events
// are not emitted.
type mentions struct {
	mu   sync.Mutex
	next map[types.NamespacedName]map[events.Event][]string
	last map[types.NamespacedName]time.Time
}

func (m *mentions) forget(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.next, key)
	delete(m.last, key)
}

// Mention keeps an Event about a node for Mentioned. All nodes with the same Event share one, which ends with their names.
func (p *Pass[T]) Mention(e events.Event, node string) {
	p.mentions.mu.Lock()
	defer p.mentions.mu.Unlock()
	if p.mentions.next == nil {
		p.mentions.next, p.mentions.last = map[types.NamespacedName]map[events.Event][]string{}, map[types.NamespacedName]time.Time{}
	}
	if p.mentions.next[p.Key] == nil {
		p.mentions.next[p.Key] = map[events.Event][]string{}
	}
	e.Object = nil // It differs from pass to pass.
	p.mentions.next[p.Key][e] = append(p.mentions.next[p.Key][e], node)
}

// Mentioned returns the Events of Mention since it last returned any. While a turn is in progress, it returns them every mentionEvery.
func (p *Pass[T]) Mentioned() (all []events.Event) {
	p.mentions.mu.Lock()
	defer p.mentions.mu.Unlock()
	next := p.mentions.next[p.Key]
	if len(next) == 0 {
		return nil
	}
	busy := slices.ContainsFunc(p.Turns, func(t T) bool { return t.Base().Unit.HoldsSlot() })
	if due := p.mentions.last[p.Key].Add(mentionEvery); busy && p.Now.Before(due) {
		p.WakeAt(due)
		return nil
	}
	p.mentions.last[p.Key] = p.Now
	delete(p.mentions.next, p.Key)
	byMessage := func(a, b events.Event) int { return strings.Compare(a.Reason+a.Message, b.Reason+b.Message) }
	for _, e := range slices.SortedFunc(maps.Keys(next), byMessage) {
		all = append(all, e.Naming(p.Object, next[e]))
	}
	return all
}
