// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"moult.dev/moult/api/v1alpha1"
)

// A machine that another NodeRollout has in a turn begins none here.
func TestDisputed(t *testing.T) {
	for name, tc := range map[string]struct {
		turn  v1alpha1.MachineTurn
		here  bool
		begin bool
	}{
		"its machine":         {turn: v1alpha1.MachineTurn{ScaleSet: "zones/a/Pool", Machine: "OLD"}, here: true},
		"its replacement":     {turn: v1alpha1.MachineTurn{ScaleSet: "pool", Machine: "gone", Replacement: "old"}, here: true},
		"its node":            {turn: v1alpha1.MachineTurn{ScaleSet: "pool", Machine: "old", NodeUID: "uid-old"}},
		"in another cloud":    {turn: v1alpha1.MachineTurn{ScaleSet: "pool", Machine: "old", NodeUID: "uid-else"}, begin: true},
		"another machine":     {turn: v1alpha1.MachineTurn{ScaleSet: "pool", Machine: "other", NodeUID: "uid-other"}, here: true, begin: true},
		"another set":         {turn: v1alpha1.MachineTurn{ScaleSet: "pool-2", Machine: "old"}, here: true, begin: true},
		"nothing that is old": {turn: v1alpha1.MachineTurn{ScaleSet: "pool"}, here: true, begin: true},
	} {
		s := newScene(v1alpha1.MachineAdding)
		s.Rivals.Add(&Rival{MachineTurn: tc.turn, Rollout: "theirs"}, tc.here)
		u := s.Look(s.Nodes["n-old"], s.Rooms(nil)).Unit
		if tc.begin != (u.Reason == "") || !tc.begin && (u.Reason != v1alpha1.ReasonScaleSetBusy || u.Message != "machine old is in a turn of NodeRollout theirs") {
			t.Errorf("%s: %s %s", name, u.Reason, u.Message)
		}
		// What never had a Node is not taken for what is of none.
		if why := s.Disputed(s.set, s.machine("other"), &Node{Node: &corev1.Node{}}); (why != "") != (name == "another machine") {
			t.Errorf("%s: %s", name, why)
		}
	}
}

// Where two have begun a turn for one machine, one of them gives it up, whatever each has seen first.
func TestYields(t *testing.T) {
	phases := []v1alpha1.MachinePhase{v1alpha1.MachineAdding, v1alpha1.MachineJoining, v1alpha1.MachineClaiming}
	for _, phase := range phases {
		for name, tc := range map[string]struct {
			rival  Rival
			claims bool
			goesOn bool
		}{
			"theirs is the first":         {rival: Rival{First: true, MachineTurn: v1alpha1.MachineTurn{Phase: v1alpha1.MachineJoining}}},
			"ours is":                     {rival: Rival{MachineTurn: v1alpha1.MachineTurn{Phase: v1alpha1.MachineClaiming}}, goesOn: true},
			"theirs has the node":         {rival: Rival{MachineTurn: v1alpha1.MachineTurn{Phase: v1alpha1.MachineDraining}}},
			"ours has":                    {rival: Rival{First: true, MachineTurn: v1alpha1.MachineTurn{Phase: v1alpha1.MachineClaiming}}, claims: true, goesOn: true},
			"theirs is given up":          {rival: Rival{First: true, MachineTurn: v1alpha1.MachineTurn{Phase: v1alpha1.MachineDiscarding}}, goesOn: true},
			"theirs replaces by this one": {rival: Rival{First: true, MachineTurn: v1alpha1.MachineTurn{Phase: v1alpha1.MachineJoining, Machine: "another", Replacement: "old"}}, goesOn: true},
		} {
			s := newScene(phase)
			if tc.claims {
				s.claim(func(*v1alpha1.Claim) {})
			}
			tc.rival.ScaleSet, tc.rival.Rollout = "pool", "theirs"
			if tc.rival.Machine == "" {
				tc.rival.Machine, tc.rival.NodeUID = "old", "uid-old"
			}
			s.Rivals.Add(&tc.rival, true)
			turns := s.Judge([]*Turn{s.turn})
			if on := !turns[0].Over && turns[0].Phase != v1alpha1.MachineDiscarding; on != tc.goesOn {
				t.Errorf("%s, %s: %s over %v, %s", phase, name, turns[0].Phase, turns[0].Over, turns[0].Message)
			}
		}
	}
	// A machine that is gone already is made up for.
	s := newScene(v1alpha1.MachineAdding)
	s.turn.DeletesFirst, s.turn.Machine = true, ""
	s.Rivals.Add(&Rival{First: true, MachineTurn: v1alpha1.MachineTurn{ScaleSet: "pool", NodeUID: "uid-old", Phase: v1alpha1.MachineJoining}}, true)
	if turns := s.Judge([]*Turn{s.turn}); turns[0].Over || turns[0].Phase == v1alpha1.MachineDiscarding {
		t.Errorf("%+v", turns[0])
	}
}
