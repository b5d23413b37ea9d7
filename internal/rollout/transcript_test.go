// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"math"
	"testing"
	"time"
)

// script is a world in which what happens is written down, and golden says how it goes.
type script struct{ *world }

// acts lets a rollout act on what is true now.
func (s script) acts(p *party) {
	s.act(p, len(s.history)-1, math.MaxInt)
	s.check()
}

// killed lets a rollout act until it has written so often.
func (s script) killed(p *party, writes int) {
	s.act(p, len(s.history)-1, writes)
	s.say(nil, "%s is killed there, and started again.", p.name)
	s.check()
}

// later lets a rollout act on the present, after another has acted on the same state of the nodes.
func (s script) later(p *party, view int) {
	s.act(p, view, math.MaxInt)
	s.check()
}

func (s script) succeeds(p *party, names ...string) {
	for _, name := range names {
		s.ends(p, name, succeeded)
	}
	s.say(nil, "The change of %s succeeds on %s.", p.name, enumerate(names))
}

func (s script) fails(p *party, name string) {
	s.ends(p, name, broken)
	s.say(nil, "The change of %s fails on %s.", p.name, name)
}

func (s script) passes(d time.Duration) { s.now = s.now.Add(d) }

func (s script) wants(p *party, what string) {
	s.say(nil, "%s wants %s on every node: %s.", p.name, p.wants(), what)
}

func TestTranscripts(t *testing.T) {
	for name, play := range map[string]func(s script){
		"two-at-a-time": func(s script) {
			os := s.add(&party{name: "os", Strategy: Strategy{MaxConcurrent: 2}})
			s.wants(os, "two at once, alone on a node")
			s.label("node-4", os, optOut)
			s.say(nil, "A person labels node-4 to keep os away.")
			s.acts(os)
			s.passes(4 * time.Minute)
			s.succeeds(os, "node-3")
			s.acts(os)
			s.passes(3 * time.Minute)
			s.fails(os, "node-2")
			s.acts(os)
			s.passes(2 * time.Minute)
			s.succeeds(os, "node-5")
			s.acts(os)
			s.passes(time.Minute)
			s.fails(os, "node-1")
			s.acts(os)
			s.join("node-6")
			s.say(nil, "Node node-6 joins.")
			s.acts(os)
			s.passes(time.Hour)
			s.edit("node-2", func(m *machine) { m.retry++ })
			s.say(nil, "A person has repaired node-2, and asks to try again there.")
			s.acts(os)
			s.passes(4 * time.Minute)
			s.succeeds(os, "node-2")
			s.acts(os)
			s.passes(4 * time.Minute)
			s.succeeds(os, "node-6")
			s.acts(os)
			s.passes(time.Hour)
			os.generation++
			s.say(nil, "A person asks os to try again wherever it failed.")
			s.acts(os)
			s.passes(4 * time.Minute)
			s.succeeds(os, "node-1")
			s.acts(os)
		},
		"three-rollouts-share-a-fleet": func(s script) {
			for _, name := range []string{"node-4", "node-5"} {
				s.leave(name)
			}
			os := s.add(&party{name: "os", Strategy: Strategy{MaxConcurrent: 1}})
			agent := s.add(&party{name: "agent", Strategy: Strategy{MaxConcurrent: 3, Shared: true}})
			audit := s.add(&party{name: "audit", Strategy: Strategy{MaxConcurrent: 3, Shared: true}})
			s.wants(os, "one at a time, alone on a node")
			s.wants(agent, "three at once, beside others")
			s.wants(audit, "three at once, beside others")
			before := len(s.history) - 1
			s.acts(os)
			s.say(nil, "agent has not seen that yet.")
			s.later(agent, before)
			s.acts(agent)
			s.acts(audit)
			s.passes(5 * time.Minute)
			s.succeeds(os, "node-2")
			s.acts(os)
			s.killed(agent, 1)
			s.acts(agent)
			s.acts(audit)
			s.passes(5 * time.Minute)
			s.succeeds(agent, "node-1", "node-2", "node-3")
			s.acts(agent)
			s.acts(os)
			s.passes(time.Minute)
			s.succeeds(audit, "node-1", "node-3")
			s.acts(audit)
			s.acts(os)
			s.passes(5 * time.Minute)
			s.succeeds(audit, "node-2")
			s.acts(audit)
			s.succeeds(os, "node-3")
			s.acts(os)
			s.passes(5 * time.Minute)
			s.succeeds(os, "node-1")
			s.acts(os)
		},
		"nights-of-friday": func(s script) {
			zone, err := time.LoadLocation("Europe/Berlin")
			if err != nil {
				s.t.Fatal(err)
			}
			s.zone = zone
			for _, name := range []string{"node-3", "node-4", "node-5"} {
				s.leave(name)
			}
			k3s := s.add(&party{name: "k3s", soak: 10 * time.Minute, Strategy: Strategy{
				MaxConcurrent: 1, Window: mustWindow(s.t, []string{"fri"}, "22:00", "04:00", "Europe/Berlin"),
			}})
			s.wants(k3s, "one at a time, soaked for ten minutes, on Fridays from 22:00 to 04:00 in Berlin")
			s.acts(k3s)
			s.now = k3s.Window.Next(s.now)
			s.acts(k3s)
			s.passes(20 * time.Minute)
			k3s.revision++
			s.say(nil, "A person changes k3s: now it wants v2.")
			s.acts(k3s)
			s.say(nil, "What ran on node-2 is gone.")
			s.acts(k3s)
			s.passes(97 * time.Minute)
			s.succeeds(k3s, "node-2")
			s.acts(k3s)
			s.passes(10 * time.Minute)
			s.acts(k3s)
			s.now = k3s.Window.Next(s.now)
			s.acts(k3s)
			s.passes(4*time.Hour + time.Minute)
			k3s.revision++
			s.say(nil, "A person changes k3s: now it wants v3.")
			s.acts(k3s)
			s.succeeds(k3s, "node-1")
			s.acts(k3s)
			s.passes(10 * time.Minute)
			s.acts(k3s)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "node-1", "node-2", "node-3", "node-4", "node-5")
			play(script{w})
			golden(t, name+".txt", w.story.String())
		})
	}
}
