// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"moult.dev/moult/internal/rollout"
)

const (
	// StatusInterval is the minimum time between two writes of a rollout's status.
	StatusInterval = time.Second
	// StatusDelay is the time from a change to its status. A person or a tool that reads a rollout after the change and updates it at once then
	// rarely gets a conflict.
	StatusDelay = 150 * time.Millisecond
	// keptFor is how long a write is remembered at least, for rollouts that may be gone. It is remembered for at most two times as long.
	keptFor = 7 * 24 * time.Hour
)

// Reports stores this process's last write of each rollout's status. It may be dropped. Then one write may come sooner than StatusInterval.
type Reports struct {
	delay time.Duration

	mu    sync.Mutex
	last  map[types.UID]written
	swept time.Time
}

type written struct {
	at time.Time
	// version is the rollout's resourceVersion after the write. The manager's client makes typed reads wait for its own
	// writes, but not unstructured ones.
	version string
	// noticed is when a change was noticed that no status shows yet.
	noticed time.Time
}

// isNewerThan reports whether a rollout that was read at this resourceVersion does not show the write. A write of a minute ago does not count:
// if the cache does not show it, it never will, as after etcd was restored from a backup.
func (w written) isNewerThan(version string, now time.Time) bool {
	order, err := resourceversion.CompareResourceVersion(version, w.version)
	return err == nil && order < 0 && now.Sub(w.at) < time.Minute
}

// IsStale reports whether a rollout that was read at this resourceVersion does not show this process's last write of its status.
func (r *Reports) IsStale(of types.UID, version string, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last[of].isNewerThan(version, now)
}

// NewReports returns an empty store. delay is the time from a change to its status: StatusDelay, or less in a test.
func NewReports(delay time.Duration) *Reports {
	return &Reports{delay: delay, last: map[types.UID]written{}}
}

// Next reports whether to write a status now, which was read at this resourceVersion: it has changed, and the delay and StatusInterval are
// over. If not, it returns when to look again; zero means after the next change. The first status that this process writes has no delay.
func (r *Reports) Next(of types.UID, version string, changed bool, now time.Time) (write bool, again time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	last, ok := r.last[of]
	if !ok {
		return changed, again
	}
	stale := last.isNewerThan(version, now) // Then changed may be wrong.
	if !changed && !stale {
		last.noticed = time.Time{}
		r.last[of] = last
		return false, again
	}
	if last.noticed.IsZero() {
		last.noticed = now
		r.last[of] = last
	}
	due := rollout.Later(last.noticed.Add(r.delay), last.at.Add(StatusInterval))
	switch {
	case now.Before(due):
		return false, due
	case stale:
		return false, now.Add(Coalesce)
	}
	return true, again
}

// Written records that a status was written, and the new resourceVersion.
func (r *Reports) Written(of types.UID, version string, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last[of] = written{at: at, version: version}
	if at.Sub(r.swept) > keptFor {
		r.swept = at
		maps.DeleteFunc(r.last, func(_ types.UID, w written) bool { return at.Sub(w.at) > keptFor })
	}
}
