// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"moult.dev/moult/api/v1alpha1"
)

// Waves stores the latest wave progress of each rollout of a controller, because the cache may show an older status. It may
// be dropped: an older status leads to the same wave a moment later.
type Waves struct {
	last sync.Map // of wave, by the rollout's name
}

type wave struct {
	rollout types.UID
	status  *v1alpha1.WaveStatus
}

// Store stores the progress of a rollout, and returns a copy for the status.
func (w *Waves) Store(key types.NamespacedName, rollout types.UID, s *v1alpha1.WaveStatus) *v1alpha1.WaveStatus {
	w.last.Store(key, wave{rollout, s})
	return s.DeepCopy()
}

// Latest returns the latest progress of a rollout: the stored one, or that of its status.
func (w *Waves) Latest(key types.NamespacedName, rollout types.UID, status *v1alpha1.WaveStatus) *v1alpha1.WaveStatus {
	stored, _ := w.last.Load(key)
	if last, ok := stored.(wave); ok && last.rollout == rollout && last.status != nil {
		return last.status
	}
	return status
}

// Forget drops a deleted rollout.
func (w *Waves) Forget(key types.NamespacedName) { w.last.Delete(key) }
