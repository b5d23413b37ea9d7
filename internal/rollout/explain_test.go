// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"moult.dev/moult/api/v1alpha1"
)

// refusing are the checks that do not let the unit start, with their reasons.
func refusing(e *Explanation) []string {
	var all []string
	for _, v := range e.Verdicts {
		if v.Reason != "" {
			all = append(all, v.Name+"="+string(v.Reason))
		}
	}
	return all
}

func TestExplain(t *testing.T) {
	none := Budget{Name: "none", Selector: labels.Everything(), MaxUnavailable: &Amount{}}
	for name, tc := range map[string]struct {
		strategy Strategy
		units    []Unit
		fleet    Fleet
		want     []string
		place    int
		asking   int
		ahead    []string
		wave     string
	}{
		"nothing refuses": {strategy: Strategy{MaxConcurrent: 1}, units: []Unit{outdated("n")}, place: 1, asking: 1},
		"all that refuse are told, not only the first": {
			strategy: Strategy{MaxConcurrent: 0, Paused: true, Window: window(t, "22:00", "23:00", "fri")},
			units:    []Unit{outdated("n")},
			fleet:    Fleet{Nodes: map[string]*Node{"n": claimed(exclusive("other"))}, Budgets: []Budget{none}},
			want:     []string{"paused=Paused", "window=OutsideWindow", "claim=Claimed", "concurrency=MaxConcurrent", "budget=BudgetExhausted"},
			place:    1, asking: 1,
		},
		"what goes before it takes the slots": {
			strategy: Strategy{MaxConcurrent: 1}, units: []Unit{outdated("n", ranked(2)), outdated("m", ranked(1)), outdated("o", ranked(3))},
			want: []string{"concurrency=MaxConcurrent"}, place: 2, asking: 3, ahead: []string{"m"},
		},
		"a later wave": {
			strategy: Strategy{MaxConcurrent: 9, Waves: []Wave{{Name: "canary", Size: 1}}},
			units:    []Unit{outdated("n", ranked(2)), outdated("m", ranked(1))},
			want:     []string{"wave=WavePending"}, place: 2, asking: 2, ahead: []string{"m"}, wave: "remainder",
		},
		"the first wave": {
			strategy: Strategy{MaxConcurrent: 9, Waves: []Wave{{Name: "canary", Size: 1}}}, units: []Unit{outdated("n")}, place: 1, asking: 1, wave: "canary",
		},
		"it does not ask":      {strategy: Strategy{MaxConcurrent: 1}, units: []Unit{unit("n", v1alpha1.UnitUpdating), outdated("m")}, asking: 1},
		"it has failed":        {strategy: Strategy{MaxConcurrent: 1}, units: []Unit{failed("n")}},
		"there is no such one": {strategy: Strategy{MaxConcurrent: 1}, units: []Unit{outdated("m")}, asking: 1},
	} {
		t.Run(name, func(t *testing.T) {
			e := Explain(tc.strategy, tc.units, tc.fleet, noon, "n")
			if e.Place != tc.place || e.Asking != tc.asking || e.Wave != tc.wave {
				t.Errorf("place %d of %d in wave %q, want %d of %d in %q", e.Place, e.Asking, e.Wave, tc.place, tc.asking, tc.wave)
			}
			if diff := cmp.Diff(tc.ahead, e.Ahead); diff != "" {
				t.Errorf("ahead (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.want, refusing(&e)); diff != "" {
				t.Errorf("refusing (-want +got):\n%s", diff)
			}
			if (tc.place == 0) != (len(e.Verdicts) == 0) || tc.place > 0 && len(e.Verdicts) != len(standard.checks) {
				t.Errorf("%d verdicts", len(e.Verdicts))
			}
		})
	}
}

// TestExplainAgreesWithDecide in worlds made at random: the first check that refuses is the reason that Decide gives.
func TestExplainAgreesWithDecide(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 11))
	states := []v1alpha1.UnitState{v1alpha1.UnitOutdated, v1alpha1.UnitOutdated, v1alpha1.UnitUpdated, v1alpha1.UnitUpdating, v1alpha1.UnitFailed}
	for round := range 300 {
		s := Strategy{UID: own, MaxConcurrent: random.IntN(5), Paused: random.IntN(9) == 0, Revision: "r"}
		if random.IntN(2) == 0 {
			s.Waves = []Wave{{Name: "canary", Size: 1 + random.IntN(3)}, {Name: "more", Size: 2}}
			if s.SoakLast = random.IntN(2) == 0; s.SoakLast {
				s.Waves[0].Nodes = names("n00", "n03", "n05")
			}
		}
		s.Claimless = random.IntN(3) == 0
		f := Fleet{Nodes: map[string]*Node{}, Budgets: []Budget{{Name: "b", Selector: labels.Everything(), MaxUnavailable: &Amount{N: 1 + random.IntN(6)}}}}
		var units []Unit
		for i := range random.IntN(12) {
			u := unit(fmt.Sprintf("n%02d", i), states[random.IntN(len(states))], ranked(random.Uint64N(100)))
			u.OptedOut = u.State == v1alpha1.UnitOutdated && random.IntN(8) == 0
			u.Down, u.Excused = u.State == v1alpha1.UnitOutdated && random.IntN(4) == 0, random.IntN(4) == 0
			units = append(units, u)
			n := &Node{Name: u.Node, Unschedulable: random.IntN(6) == 0}
			if u.State == v1alpha1.UnitUpdating || random.IntN(8) == 0 {
				uid := own
				if u.State != v1alpha1.UnitUpdating {
					uid = "other"
				}
				n.Claims = []v1alpha1.Claim{{Rollout: "Plan/a/b", UID: uid, Since: metav1.Time{Time: noon.Add(-time.Hour)}}}
			}
			f.Nodes[u.Node] = n
		}
		d := Decide(s, units, f, noon)
		answers := map[string]v1alpha1.Reason{}
		for _, w := range d.Waiting {
			answers[w.Node] = w.Reason
		}
		var starts []string
		for _, step := range Sequence(s, units, f, noon) {
			if step.Reason == "" {
				starts = append(starts, step.Node)
			}
			if step.Reason != answers[step.Node] {
				t.Fatalf("round %d: of %s Sequence says %q, and Decide %q", round, step.Node, step.Reason, answers[step.Node])
			}
			e := Explain(s, units, f, noon, step.Node)
			first := v1alpha1.Reason("")
			for _, v := range e.Verdicts {
				if first == "" {
					first = v.Reason
				}
			}
			if e.Place == 0 || first != step.Reason || e.Wave != step.Wave {
				t.Fatalf("round %d: of %s Explain says %q (%+v), and Sequence %q", round, step.Node, first, e, step.Reason)
			}
		}
		if diff := cmp.Diff(d.Start, starts); diff != "" {
			t.Fatalf("round %d: start (-Decide +Sequence):\n%s", round, diff)
		}
	}
}
