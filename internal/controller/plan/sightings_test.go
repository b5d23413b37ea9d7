// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
)

func TestSightings(t *testing.T) {
	p, n := newPlan(), newNode("node-1")
	key := turnKey{plan: uid, node: "node-1", turn: "t1"}
	running, ended := newTurnJob(p, n), newTurnJob(p, n, failed)
	adopted := newTurnJob(p, n, left)
	for name, tc := range map[string]struct {
		happens func(*sightings)
		key     turnKey
		want    sightingState
		end     *batchv1.Job
	}{
		"nothing":                            {func(*sightings) {}, key, jobUnseen, nil},
		"seen":                               {func(s *sightings) { s.see(key) }, key, jobSeen, nil},
		"promised":                           {func(s *sightings) { s.promise(key) }, key, jobPromised, nil},
		"promised, and made":                 {func(s *sightings) { s.promise(key); s.made(key) }, key, jobSeen, nil},
		"promised, and read of":              {func(s *sightings) { s.promise(key); s.see(key) }, key, jobSeen, nil},
		"promised, and gone":                 {func(s *sightings) { s.promise(key); s.gone(running, true) }, key, jobStopped, nil},
		"looked for in vain, and back":       {func(s *sightings) { s.see(key); s.absent(key, now); s.see(key) }, key, jobSeen, nil},
		"seen, on another node":              {func(s *sightings) { s.see(turnKey{uid, "node-2", "t1"}) }, key, jobUnseen, nil},
		"seen, of another turn":              {func(s *sightings) { s.see(turnKey{uid, "node-1", "t2"}) }, key, jobUnseen, nil},
		"deleted in the middle":              {func(s *sightings) { s.see(key); s.gone(running, true) }, key, jobStopped, nil},
		"deleted at its end":                 {func(s *sightings) { s.see(key); s.gone(ended, true) }, key, jobFinished, ended},
		"gone while nobody looked":           {func(s *sightings) { s.see(key); s.gone(running, false) }, key, jobLost, nil},
		"gone at its end, while nobody did":  {func(s *sightings) { s.see(key); s.gone(ended, false) }, key, jobFinished, ended},
		"gone, of another turn":              {func(s *sightings) { s.see(key); s.gone(newTurnJob(p, n, ofTurn("t2")), true) }, key, jobSeen, nil},
		"gone, of another Plan":              {func(s *sightings) { s.see(key); s.gone(newTurnJob(p, n, ownedBy("older")), true) }, key, jobSeen, nil},
		"gone, and never seen":               {func(s *sightings) { s.gone(running, true) }, key, jobUnseen, nil},
		"deleted, and made once more":        {func(s *sightings) { s.see(key); s.gone(running, true); s.made(key) }, key, jobSeen, nil},
		"deleted, and read of before that":   {func(s *sightings) { s.see(key); s.gone(running, true); s.see(key) }, key, jobStopped, nil},
		"over":                               {func(s *sightings) { s.see(key); s.gone(ended, true); s.forget(key) }, key, jobUnseen, nil},
		"one that was adopted":               {func(s *sightings) { s.see(turnKey{uid, "node-1", "job/job-node-1"}); s.gone(adopted, true) }, turnKey{uid, "node-1", "job/job-node-1"}, jobStopped, nil},
		"another's end does not make it end": {func(s *sightings) { s.see(key); s.gone(adopted, true) }, key, jobSeen, nil},
	} {
		s := newSightings()
		tc.happens(s)
		if got := s.get(tc.key); got.state != tc.want || got.end != tc.end {
			t.Errorf("%s: got %+v, want %d, %v", name, got, tc.want, tc.end)
		}
	}
}

// Since when a Job is missing is told from the first time that it is looked for in vain, until it is there again.
func TestSightingsAbsent(t *testing.T) {
	key := turnKey{plan: uid, node: "node-1", turn: "t1"}
	s := newSightings()
	absent := func(at time.Time, state sightingState, since time.Time) {
		t.Helper()
		if gotState, gotSince := s.absent(key, at); gotState != state || !gotSince.Equal(since) {
			t.Errorf("at %s got %d, since %s; want %d, since %s", at, gotState, gotSince, state, since)
		}
	}
	absent(now, jobUnseen, time.Time{}) // Nobody knows of one.
	s.see(key)
	absent(now, jobSeen, now)
	absent(now.Add(time.Second), jobSeen, now)
	s.see(key)
	absent(now.Add(time.Minute), jobSeen, now.Add(time.Minute))
	s.made(key)
	absent(now.Add(time.Hour), jobSeen, now.Add(time.Hour))
}
