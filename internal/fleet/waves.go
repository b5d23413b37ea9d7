// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"moult.dev/moult/api/v1alpha1"
)

// Waves remembers how far each rollout of one controller has come through its waves, while what it has written of that is not to be read
// yet. To forget it costs nothing: a status that is some moments old leads to the same wave a moment later.
type Waves struct {
	mu   sync.Mutex
	last map[types.NamespacedName]wave
}

type wave struct {
	rollout types.UID
	status  *v1alpha1.WaveStatus
}

// NewWaves returns an empty memory.
func NewWaves() *Waves { return &Waves{last: map[types.NamespacedName]wave{}} }

// Keep notes how far a rollout has come, and gives it back for the status.
func (w *Waves) Keep(key types.NamespacedName, rollout types.UID, s *v1alpha1.WaveStatus) *v1alpha1.WaveStatus {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last[key] = wave{rollout, s}
	return s.DeepCopy()
}

// Latest is how far a rollout has come, by what is known newest: by its status, or by what was noted since.
func (w *Waves) Latest(key types.NamespacedName, rollout types.UID, status *v1alpha1.WaveStatus) *v1alpha1.WaveStatus {
	w.mu.Lock()
	defer w.mu.Unlock()
	if last, ok := w.last[key]; ok && last.rollout == rollout && last.status != nil {
		return last.status
	}
	return status
}

// Forget drops a rollout that is gone.
func (w *Waves) Forget(key types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.last, key)
}
