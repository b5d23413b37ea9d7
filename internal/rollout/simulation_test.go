// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestSimulation lets rollouts loose on random fleets, each in a random order of things that happen, and checks after
// every step what must always hold, and at the end that every rollout gets there. MOULT_SEED=n repeats one that failed.
func TestSimulation(t *testing.T) {
	first, worlds := rand.Uint64N(1_000_000_000), uint64(300)
	if testing.Short() {
		worlds = 50
	}
	if text := os.Getenv("MOULT_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("reading $MOULT_SEED, %v", err)
		}
		first, worlds = seed, 1
	}
	t.Logf("seeds from %d on", first)
	steps := 0
	for seed := first; seed < first+worlds; seed++ {
		s := &simulation{world: newWorld(t), Rand: rand.New(rand.NewPCG(seed, 0))}
		ended := false
		func() {
			defer func() {
				if !ended {
					t.Logf("MOULT_SEED=%d repeats this:\n%s", seed, tail(s.story.String(), 60))
				}
			}()
			s.populate()
			for range 150 {
				s.happen()
				s.check()
				steps++
			}
			s.settleDown()
			ended = true
		}()
	}
	t.Logf("%d worlds, %d steps", worlds, steps)
}

type simulation struct {
	*world
	*rand.Rand
	joined int
}

func (s *simulation) chance(percent int) bool { return s.IntN(100) < percent }

func pick[T any](s *simulation, from []T) T { return from[s.IntN(len(from))] }

func (s *simulation) names() []string { return slices.Sorted(maps.Keys(s.present())) }

func (s *simulation) join() {
	s.joined++
	name := "lin-" + strconv.Itoa(s.joined)
	if s.chance(20) {
		name = "win-" + strconv.Itoa(s.joined)
	}
	s.world.join(name)
	s.say(nil, "Node %s joins.", name)
}

func (s *simulation) populate() {
	s.now = s.now.Add(time.Duration(s.IntN(7*24*60)) * time.Minute)
	for range 1 + s.IntN(12) {
		s.join()
	}
	for i := range 2 + s.IntN(2) {
		p := &party{name: "rollout-" + strconv.Itoa(i), unfit: s.chance(20)}
		p.MaxConcurrent, p.Shared = s.IntN(5), s.chance(50)
		if s.chance(30) {
			p.soak = 10 * time.Minute
		}
		s.window(p)
		s.add(p)
		s.say(p, "wants %s, %d at once, shared: %v, window: %v, soak: %s.", p.wants(), p.MaxConcurrent, p.Shared, p.Window != nil, p.soak)
	}
}

// window gives a rollout a random window, or none.
func (s *simulation) window(p *party) {
	p.Window, p.WindowError = nil, ""
	switch s.IntN(8) {
	case 0:
		p.Window = mustWindow(s.t, everyDay, "22:00", "04:00", "Europe/Berlin")
	case 1:
		p.Window = mustWindow(s.t, everyDay, "09:00", "17:00", "America/New_York")
	case 2:
		p.Window = mustWindow(s.t, []string{"fri", "sat", "tue"}, "20:00", "06:00", "UTC")
	case 3:
		p.WindowError = "what is 25:00?"
	}
}

// happen is one step: mostly a rollout acts or something that runs ends, and now and then somebody interferes.
func (s *simulation) happen() {
	p := pick(s, s.parties)
	switch n := s.IntN(100); {
	case n < 45:
		s.reconcile(p)
	case n < 70:
		s.end(p, 25)
	case n < 78:
		s.now = s.now.Add(time.Duration(1+s.IntN(8*60)) * time.Minute)
	case n < 84:
		s.change(p)
	default:
		s.interfere(p)
	}
}

// reconcile lets a rollout act, on what is true now or on what was a while ago. Sometimes it is killed in the middle.
func (s *simulation) reconcile(p *party) {
	view, writes := len(s.history)-1, math.MaxInt
	if s.chance(40) {
		view -= s.IntN(view - p.seen + 1)
	}
	killed := s.chance(10)
	if killed {
		writes = s.IntN(4)
	}
	s.act(p, view, writes)
	if killed {
		s.say(p, "is killed after at most %d writes.", writes)
		p.seen = len(s.history) - 1
	}
}

// end ends one of the changes that run.
func (s *simulation) end(p *party, failing int) {
	var at []string
	for _, name := range slices.Sorted(maps.Keys(p.changes)) {
		if p.changes[name].outcome == running {
			at = append(at, name)
		}
	}
	if len(at) == 0 {
		return
	}
	name, how, word := pick(s, at), succeeded, "succeeds"
	if s.chance(failing) {
		how, word = broken, "fails"
	}
	s.ends(p, name, how)
	s.say(p, "is told that the change on %s %s.", name, word)
}

// change is a person who changes a rollout.
func (s *simulation) change(p *party) {
	switch s.IntN(4) {
	case 0:
		p.revision++
		p.generation++
		s.say(p, "now wants %s.", p.wants())
	case 1:
		p.generation++
		s.say(p, "is to try again what failed.")
	case 2:
		s.limit(p, s.IntN(5))
		p.generation += s.IntN(2)
		s.say(p, "now starts %d at once.", p.MaxConcurrent)
	case 3:
		s.window(p)
		s.say(p, "has another window (%v), error %q.", p.Window != nil, p.WindowError)
	}
}

// interfere is a person, or a machine, that changes a node.
func (s *simulation) interfere(p *party) {
	if len(s.present()) == 0 {
		s.join()
		return
	}
	name := pick(s, s.names())
	m := s.present()[name]
	switch s.IntN(8) {
	case 0:
		s.label(name, p, optOut)
		s.say(p, "is kept away from %s by its label.", name)
	case 1, 2:
		s.label(name, p, "")
		s.say(p, "is let on %s: its label is taken off.", name)
	case 3:
		s.edit(name, func(m *machine) { m.retry++ })
		s.say(nil, "Somebody asks to try again on %s.", name)
	case 4:
		if len(s.present()) < 15 {
			s.join()
		}
	case 5:
		s.leave(name)
		s.say(nil, "Node %s leaves.", name)
	case 6:
		if len(m.claims) == 0 {
			s.edit(name, func(m *machine) { m.claimError = "reading annotation, bad" })
			s.say(nil, "Somebody scribbles over the claims on %s.", name)
		}
	case 7:
		delete(p.changes, name)
		s.say(p, "loses what ran on %s: somebody deletes it.", name)
	}
}

// settleDown is when people leave the fleet alone, and nothing fails any more: every rollout must get there, and wake by
// itself when there is nothing left but to wait.
func (s *simulation) settleDown() {
	s.say(nil, "From now on nobody interferes, and nothing fails.")
	for _, name := range s.names() {
		s.edit(name, func(m *machine) { m.claimError = "" })
	}
	for _, p := range s.parties {
		// What has failed and is not noted yet would count as a failure of the new attempt.
		s.act(p, len(s.history)-1, math.MaxInt)
		p.generation++
		p.WindowError = ""
		s.limit(p, max(1, p.MaxConcurrent))
	}
	for range 1000 {
		before, ran := s.moves, 0
		var wake time.Time
		for _, p := range s.parties {
			d := s.act(p, len(s.history)-1, math.MaxInt)
			s.check()
			ran += s.succeed(p)
			for _, at := range append(s.soaks(p), d.Next) {
				if at.After(s.now) && (wake.IsZero() || at.Before(wake)) {
					wake = at
				}
			}
		}
		if !slices.ContainsFunc(s.parties, func(p *party) bool { return !s.finished(p) }) {
			return
		}
		if s.moves > before || ran > 0 {
			continue
		}
		if wake.IsZero() {
			s.t.Fatal("nothing moves any more, and nobody is to come back")
		}
		s.now = wake
	}
	s.t.Fatal("it never ends")
}

// succeed lets everything that a rollout runs succeed.
func (s *simulation) succeed(p *party) int {
	n := 0
	for _, name := range slices.Sorted(maps.Keys(p.changes)) {
		if p.changes[name].outcome == running {
			s.ends(p, name, succeeded)
			n++
		}
	}
	return n
}

// soaks are the instants at which nodes have soaked.
func (s *simulation) soaks(p *party) []time.Time {
	var all []time.Time
	for _, run := range p.changes {
		if run.outcome == succeeded {
			all = append(all, run.ended.Add(p.soak))
		}
	}
	return all
}

func tail(text string, lines int) string {
	all := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
