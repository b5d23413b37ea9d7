// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/types"
)

// sightings is what this process has seen of the Jobs of turns that are not over, so that it can tell a Job that was never
// made from one that has come and gone: a change is never run a second time for want of memory. It is an aid only. A
// process that starts anew has none, and goes by the age of the claim.
type sightings struct {
	mu   sync.Mutex
	seen map[turnKey]sighting
}

// turnKey names a turn on a node for good.
type turnKey struct {
	plan types.UID
	node string
	turn string
}

type sighting struct {
	state sightingState
	// missing is since when the Job has been looked for in vain.
	missing time.Time
	// end is the Job as it was last, when it had finished.
	end *batchv1.Job
}

type sightingState int

const (
	jobUnseen   sightingState = iota
	jobPromised               // this process has claimed the node for it, and has not made it yet
	jobSeen                   // it exists, or did a moment ago
	jobStopped                // it was deleted before it had finished
	jobFinished               // it had finished when it was deleted: end says how
	jobLost                   // it is gone, and how it ended was not seen
)

func newSightings() *sightings { return &sightings{seen: map[turnKey]sighting{}} }

// promise notes that this process has claimed a node, and makes the Job next.
func (s *sightings) promise(key turnKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen[key] = sighting{state: jobPromised}
}

// made notes that the Job of a turn was made, for the first time or again.
func (s *sightings) made(key turnKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen[key] = sighting{state: jobSeen}
}

// see notes that the Job of a turn was among those that a reconcile has read. One that has gone since stays gone.
func (s *sightings) see(key turnKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := s.seen[key]; old.state == jobUnseen || old.state == jobPromised || old.state == jobSeen {
		s.seen[key] = sighting{state: jobSeen}
	}
}

// absent returns what was last seen of the Job of a turn that is not there, and since when it has not been.
func (s *sightings) absent(key turnKey, now time.Time) (sightingState, time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen, ok := s.seen[key]
	if ok && seen.missing.IsZero() {
		seen.missing = now
		s.seen[key] = seen
	}
	return seen.state, seen.missing
}

// get returns what was last seen of a turn's Job.
func (s *sightings) get(key turnKey) sighting {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen[key]
}

// forget drops a turn that is over.
func (s *sightings) forget(key turnKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.seen, key)
}

// gone notes that a Job was deleted. Its last state is not known when the watch had been interrupted.
func (s *sightings) gone(j *batchv1.Job, known bool) {
	key := turnKey{plan: ownerOf(j), node: nodeOf(j), turn: turnOf(j)}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.seen[key]; !ok {
		return
	}
	switch {
	case finished(j) != nil:
		s.seen[key] = sighting{state: jobFinished, end: j}
	case known:
		s.seen[key] = sighting{state: jobStopped}
	default:
		s.seen[key] = sighting{state: jobLost}
	}
}
