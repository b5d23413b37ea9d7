// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"moult.dev/moult/internal/kind/daemonset"
)

// memory is what this process has requested of the API server, and the caches do not show yet. Without it more pods than allowed would be
// replaced at once. A process that starts has none: its caches begin with what the API server has.
type memory struct {
	mu  sync.Mutex
	all map[types.NamespacedName]*requested
}

// requested is what was requested for one ExtendedDaemonSet.
type requested struct {
	created map[types.UID]creation
	deleted map[types.UID]bool
	// refused says by node which pod the API server has refused. It is kept until the node has a pod. To forget it costs a request.
	refused map[string]daemonset.Refusal
	// batches says when pods were last created, replaced and cleaned up, until the status shows it.
	batches map[string]time.Time
}

// creation is when a pod was created, and for which node.
type creation struct {
	node string
	at   time.Time
}

func newMemory() *memory { return &memory{all: map[types.NamespacedName]*requested{}} }

// note changes what is remembered of an ExtendedDaemonSet.
func (m *memory) note(key types.NamespacedName, change func(*requested)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.all[key] == nil {
		m.all[key] = &requested{
			created: map[types.UID]creation{}, deleted: map[types.UID]bool{},
			refused: map[string]daemonset.Refusal{}, batches: map[string]time.Time{},
		}
	}
	change(m.all[key])
}

func (m *memory) forget(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.all, key)
}

// inFlight drops what the caches show, and returns the rest.
func (m *memory) inFlight(key types.NamespacedName, pods []*corev1.Pod, now time.Time) daemonset.InFlight {
	f := daemonset.InFlight{Created: map[string]time.Time{}}
	m.note(key, func(r *requested) {
		deleted := map[types.UID]bool{}
		for _, pod := range pods {
			delete(r.created, pod.UID)
			if r.deleted[pod.UID] && pod.DeletionTimestamp == nil {
				deleted[pod.UID] = true
			}
		}
		r.deleted = deleted
		for uid, c := range r.created {
			if now.Sub(c.at) >= daemonset.UnseenFor {
				delete(r.created, uid)
				continue
			}
			f.Created[c.node] = c.at
		}
		f.Deleted, f.Refused, f.Batches = maps.Clone(deleted), maps.Clone(r.refused), maps.Clone(r.batches)
	})
	return f
}
