// SPDX-License-Identifier: Apache-2.0

//go:build all

package rollout

import (
	"slices"
	"testing"

	"moult.dev/moult/api/v1alpha1"
)

// omissions are what the engine is not told, by name.
var omissions = map[string]func(*Strategy, []Unit){
	"Down": func(_ *Strategy, units []Unit) {
		for i := range units {
			units[i].Down = false
		}
	},
	"Excused of what is under way": func(_ *Strategy, units []Unit) {
		for i := range units {
			units[i].Excused = units[i].Excused && units[i].State == v1alpha1.UnitFailed
		}
	},
	"Excused of what has failed": func(_ *Strategy, units []Unit) {
		for i := range units {
			units[i].Excused = units[i].Excused && units[i].State != v1alpha1.UnitFailed
		}
	},
	"Unoffered of what is updated": func(_ *Strategy, units []Unit) {
		for i := range units {
			units[i].Unoffered = units[i].Unoffered && units[i].State != v1alpha1.UnitUpdated
		}
	},
	"Unoffered of what is outdated": func(_ *Strategy, units []Unit) {
		for i := range units {
			units[i].Unoffered = units[i].Unoffered && units[i].State != v1alpha1.UnitOutdated
		}
	},
	"Claimless": func(s *Strategy, _ []Unit) { s.Claimless = false },
	"SoakLast":  func(s *Strategy, _ []Unit) { s.SoakLast = false },
	"Nodes": func(s *Strategy, _ []Unit) {
		for i := range s.Waves {
			s.Waves[i].Nodes = nil
		}
	},
}

// alter changes the strategy of a pass, and returns what takes that back.
func alter(p *pass, how func(*Strategy)) (back func()) {
	was := *p.strategy
	how(p.strategy)
	return func() { *p.strategy = was }
}

// mutation is an engine that lacks something.
type mutation struct {
	name string
	how  func(*subject)
}

// mutations are engines without one of the rules, and such as are not told something.
func mutations() []mutation {
	var all []mutation
	for i, c := range standard.checks {
		all = append(all, mutation{"check " + c.name, func(s *subject) { s.checks = slices.Delete(s.checks, i, i+1) }})
	}
	for i, h := range standard.halts {
		all = append(all, mutation{"halt " + h.name, func(s *subject) { s.halts = slices.Delete(s.halts, i, i+1) }})
	}
	for i, e := range standard.endings {
		all = append(all, mutation{"ending " + e.name, func(s *subject) { s.endings = slices.Delete(s.endings, i, i+1) }})
	}
	for i, b := range standard.books {
		all = append(all, mutation{"book " + b.name, func(s *subject) { s.books = slices.Delete(s.books, i, i+1) }})
	}
	for name, deaf := range omissions {
		all = append(all, mutation{"without " + name, func(s *subject) { s.deaf = deaf }})
	}
	return all
}

// partial are engines in which one rule does not look at all that it should.
func partial() []mutation {
	taking, hasty := func(s *Strategy) { s.Claimless = false }, func(s *Strategy) { s.SoakLast = false }
	var all []mutation
	for i, c := range standard.checks {
		switch c.name {
		case "claim", "domains", "budget":
			all = append(all, mutation{"check " + c.name + " for one that takes nodes", func(s *subject) {
				s.checks[i].apply = func(p *pass, u *candidate) (v1alpha1.Reason, string) {
					defer alter(p, taking)()
					return c.apply(p, u)
				}
			}}, mutation{"check " + c.name + " of daemon pods", func(s *subject) {
				s.checks[i].apply = func(p *pass, u *candidate) (v1alpha1.Reason, string) {
					if p.strategy.Claimless && c.name != "claim" {
						return "", ""
					}
					was := p.fleet.Replaced
					defer func() { p.fleet.Replaced = was }()
					p.fleet.Replaced = nil
					return c.apply(p, u)
				}
			}})
		case "wave":
			all = append(all, mutation{"check wave of what has failed", func(s *subject) {
				s.checks[i].apply = func(p *pass, u *candidate) (v1alpha1.Reason, string) {
					outdated := *u.Unit
					outdated.State = v1alpha1.UnitOutdated
					return c.apply(p, &candidate{Unit: &outdated, node: u.node, wave: u.wave})
				}
			}})
		}
	}
	for i, b := range standard.books {
		if b.name == "budget" {
			all = append(all, mutation{"book budget for one that takes nodes", func(s *subject) {
				s.books[i].apply = func(p *pass, u *candidate) {
					defer alter(p, taking)()
					b.apply(p, u)
				}
			}}, mutation{"book budget of daemon pods", func(s *subject) {
				s.books[i].apply = func(p *pass, u *candidate) {
					if !p.strategy.Claimless {
						b.apply(p, u)
					}
				}
			}})
		}
	}
	for i, e := range standard.endings {
		switch e.name {
		case "there", "allowed", "complete", "soaked", "approved":
			all = append(all, mutation{"ending " + e.name + " where the last need not soak", func(s *subject) {
				s.endings[i].apply = func(p *pass, index int, before *v1alpha1.WaveStatus) (v1alpha1.WaveState, string) {
					defer alter(p, hasty)()
					return e.apply(p, index, before)
				}
			}})
		}
	}
	return all
}

// TestMutations leaves out one rule at a time. The simulation must find each.
func TestMutations(t *testing.T) {
	const worlds = 2000
	for _, m := range append(mutations(), partial()...) {
		t.Run(m.name, func(t *testing.T) {
			without := subject{rules: rules{
				checks: slices.Clone(standard.checks), halts: slices.Clone(standard.halts),
				endings: slices.Clone(standard.endings), books: slices.Clone(standard.books),
			}}
			m.how(&without)
			seed, _, ok := simulate(&without, 1, worlds, func(uint64) {})
			if ok {
				t.Fatalf("%d worlds find nothing", worlds)
			}
			_, what := run(&without, seed, true)
			t.Logf("seed %d: %.120s", seed, what)
		})
	}
}
