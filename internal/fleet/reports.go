// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// StatusInterval is how often at most a rollout's status is written.
const StatusInterval = time.Second

// Reports remembers this process's last write of each rollout's status. To forget it costs one write too early.
type Reports struct {
	mu   sync.Mutex
	last map[types.UID]written
	// started are the nodes that were started since, for the next Event of that.
	started map[types.UID][]string
}

type written struct {
	at time.Time
	// version is the rollout's resourceVersion after the write. The manager's client makes typed reads wait for its own
	// writes, but not unstructured ones.
	version string
}

// NewReports returns an empty memory.
func NewReports() *Reports {
	return &Reports{last: map[types.UID]written{}, started: map[types.UID][]string{}}
}

// Start notes that a node of a rollout was started.
func (r *Reports) Start(rollout types.UID, node string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.started[rollout] = append(r.started[rollout], node)
}

// TakeStarted returns which nodes were started since it was last called, sorted.
func (r *Reports) TakeStarted(rollout types.UID) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.started[rollout]
	delete(r.started, rollout)
	slices.Sort(all)
	return slices.Compact(all)
}

// Due is when a status that is read at this resourceVersion may be written next.
func (r *Reports) Due(rollout types.UID, version string, now time.Time) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	last, ok := r.last[rollout]
	if !ok {
		return now
	}
	due := last.at.Add(StatusInterval)
	if order, err := resourceversion.CompareResourceVersion(version, last.version); err == nil && order < 0 && !due.After(now) {
		return now.Add(Coalesce) // What is read is older than what was written.
	}
	return due
}

// Written notes that a status was written, and at which resourceVersion it is since.
func (r *Reports) Written(rollout types.UID, version string, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last[rollout] = written{at, version}
	for uid, old := range r.last {
		if at.Sub(old.at) > time.Hour {
			delete(r.last, uid)
		}
	}
}
