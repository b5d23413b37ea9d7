// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"

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
