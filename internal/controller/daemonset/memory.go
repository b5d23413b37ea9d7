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
	all map[types.NamespacedName]*daemonset.InFlight
}

func newMemory() *memory { return &memory{all: map[types.NamespacedName]*daemonset.InFlight{}} }

// note changes what is remembered of an ExtendedDaemonSet.
func (m *memory) note(key types.NamespacedName, change func(*daemonset.InFlight)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.all[key] == nil {
		m.all[key] = &daemonset.InFlight{
			Created: map[string]daemonset.Creation{}, Deleted: map[types.UID]bool{},
			Refused: map[string]daemonset.Refusal{}, Batches: map[string]time.Time{},
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
func (m *memory) inFlight(key types.NamespacedName, pods []*corev1.Pod, now time.Time) (f daemonset.InFlight) {
	shown := make(map[types.UID]*corev1.Pod, len(pods))
	for _, pod := range pods {
		shown[pod.UID] = pod
	}
	m.note(key, func(r *daemonset.InFlight) {
		maps.DeleteFunc(r.Created, func(_ string, c daemonset.Creation) bool {
			return shown[c.UID] != nil || now.Sub(c.At) >= daemonset.UnseenFor
		})
		maps.DeleteFunc(r.Deleted, func(uid types.UID, _ bool) bool {
			return shown[uid] == nil || shown[uid].DeletionTimestamp != nil
		})
		f = daemonset.InFlight{
			Created: maps.Clone(r.Created), Deleted: maps.Clone(r.Deleted), Refused: maps.Clone(r.Refused), Batches: maps.Clone(r.Batches),
		}
	})
	return f
}
