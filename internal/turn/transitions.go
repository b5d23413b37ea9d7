// SPDX-License-Identifier: Apache-2.0

package turn

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/events"
	"moult.dev/moult/internal/status"
)

// Transitions returns the Events for the changes between two statuses.
func Transitions(before *v1alpha1.NodeRolloutStatus, r *v1alpha1.NodeRollout) (all []events.Event) {
	now := &r.Status
	// stalled returns the condition Stalled if it is True.
	stalled := func(s *v1alpha1.NodeRolloutStatus) (c metav1.Condition) {
		if found := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionStalled); found != nil && found.Status == metav1.ConditionTrue {
			c = *found
		}
		return c
	}
	was, is := stalled(before), stalled(now)
	if is.Reason == status.ReasonInvalid && (was.Reason != is.Reason || was.Message != is.Message) {
		all = append(all, events.NodeRolloutInvalid(r, is.Message))
	}
	if now.Revision != before.Revision && now.Revision != "" {
		all = append(all, events.NodeRolloutRevision(r))
	}
	all = append(all, events.Approved(r, before.Approval, before.Wave, now.Wave)...)
	if WaveChanged(before.Wave, now.Wave) {
		all = append(all, events.NodeRolloutWave(r, now.Wave))
	}
	if halted := HaltedNow(was.Message, is.Message, now.Wave); halted != "" {
		all = append(all, events.NodeRolloutHalted(r, halted))
	}
	if now.RolledBack != "" && before.RolledBack == "" {
		all = append(all, events.HostsRolledBack(r))
	}
	wasReady := meta.IsStatusConditionTrue(before.Conditions, v1alpha1.ConditionReady)
	if !wasReady && meta.IsStatusConditionTrue(now.Conditions, v1alpha1.ConditionReady) && now.Counts != nil && now.Counts.Total > 0 {
		all = append(all, events.NodeRolloutComplete(r))
	}
	return all
}

// WaveChanged reports whether the current wave or its state differs.
func WaveChanged(before, now *v1alpha1.WaveStatus) bool {
	return now != nil && (before == nil || before.Revision != now.Revision || before.Number != now.Number || before.State != now.State)
}

// HaltedNow returns why a rollout is halted, from the messages of its condition Stalled before and now. It is empty if the cause is the same.
// It is also empty for a halted wave, which has its own Event.
func HaltedNow(before, now string, wave *v1alpha1.WaveStatus) string {
	_, then, _ := strings.Cut(before, status.Halted)
	_, why, _ := strings.Cut(now, status.Halted)
	if why == then || wave != nil && wave.State == v1alpha1.WaveHalted {
		return ""
	}
	return why
}

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
