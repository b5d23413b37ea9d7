// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"moult.dev/moult/api/v1alpha1"
)

// failedLongAgo is a scene in which machine "dead" has failed an hour ago, and has never had a Node.
func failedLongAgo() *scene {
	s := newScene(v1alpha1.MachineAdding)
	s.set.Machines = append(s.set.Machines, Machine{ID: "dead", ProviderID: "sky://dead", NodeName: "n-dead", Zone: "b", State: Failed, Created: now.Add(-time.Hour)})
	return s
}

func TestNodeless(t *testing.T) {
	stranger := func(s *scene, change func(*Node)) {
		n := &Node{Node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "stranger"}}}
		change(n)
		s.Nodes["stranger"] = n
	}
	for _, tc := range []struct {
		name   string
		change func(*scene)
		others map[string]string
		// none is true where it is not even looked at. Where it may go there is no reason.
		none   bool
		reason v1alpha1.Reason
		says   string
		wake   time.Time
	}{
		{name: "goes", change: func(*scene) {}},
		{name: "is of the latest model", change: func(s *scene) { s.machine("dead").UpToDate = true }, none: true},
		{name: "runs", change: func(s *scene) { s.machine("dead").State = Running }, none: true},
		{name: "has a Node", change: func(s *scene) { stranger(s, func(n *Node) { n.Spec.ProviderID = "sky://DEAD" }) }, none: true},
		{name: "is of a control plane", change: func(s *scene) { s.ControlPlane = true }, none: true},
		{name: "only its Node could tell", change: func(s *scene) { s.MatchOSImage = true }, none: true},
		{name: "is in a turn", change: func(s *scene) { s.turn.Machine = "dead" }, none: true},
		{name: "is to be some turn's", change: func(s *scene) {
			s.set.Operations = []v1alpha1.CloudOperation{{Token: "o", Kind: v1alpha1.CloudOperationAdd}}
			s.set.Added = map[string][]string{"o": {"dead"}}
		}, none: true},
		{name: "some of the set are not selected", change: func(s *scene) { s.Nodes["n-other"].Selected = false }, none: true},
		{name: "the set is another rollout's by name", change: func(s *scene) { s.ScaleSets = []string{"other"} }, none: true},
		{name: "nobody says whose the set is", change: func(s *scene) { s.Nodes = map[string]*Node{} }, none: true},
		{name: "the set is named", change: func(s *scene) { s.Nodes, s.ScaleSets = map[string]*Node{}, []string{"pool"} }},
		{name: "the set is not known", change: func(s *scene) { s.set.Known = false }, none: true},
		{name: "a Node of another machine has its name", change: func(s *scene) {
			stranger(s, func(n *Node) { n.Name, n.Spec.ProviderID = "n-dead", "earth://x" })
			s.Nodes["n-dead"] = s.Nodes["stranger"]
			delete(s.Nodes, "stranger")
		}, reason: v1alpha1.ReasonMachineUnknown, says: "earth://x"},
		{name: "a selected Node is of no machine", change: func(s *scene) {
			stranger(s, func(n *Node) { n.Selected, n.Spec.ProviderID = true, "earth://x" })
		}, reason: v1alpha1.ReasonMachineUnknown, says: "Node stranger"},
		{name: "a Node does not say what it is", change: func(s *scene) { stranger(s, func(*Node) {}) }},
		{name: "nor is it known what it is to be called", change: func(s *scene) {
			stranger(s, func(*Node) {})
			s.machine("dead").NodeName = ""
		}, reason: v1alpha1.ReasonMachineUnknown, says: "Node stranger"},
		{name: "may still join", change: func(s *scene) { s.machine("dead").Created = now.Add(-9 * time.Minute) }, reason: v1alpha1.ReasonScaleSetBusy, says: "may still join until",
			wake: now.Add(time.Minute)},
		{name: "when it was made is not known", change: func(s *scene) { s.machine("dead").Created = time.Time{} }, reason: v1alpha1.ReasonMachineUnknown, says: "not known when"},
		{name: "another rollout is for the set", change: func(*scene) {}, others: map[string]string{"pool": "two"}, reason: v1alpha1.ReasonMachineUnknown, says: "NodeRollout two"},
		{name: "only detects", change: func(s *scene) { s.DetectOnly = true }, reason: v1alpha1.ReasonDetectOnly},
		{name: "is protected", change: func(s *scene) { s.machine("dead").Protected = true }, reason: v1alpha1.ReasonMachineProtected},
		{name: "the set is unfit", change: func(s *scene) { s.set.Unfit = "no" }, reason: v1alpha1.ReasonScaleSetUnfit},
		{name: "the set has as few as it may", change: func(s *scene) { s.set.Min = 4 }, reason: v1alpha1.ReasonScaleSetUnfit, says: "at least 4"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := failedLongAgo()
			tc.change(s)
			turns := []*Turn{s.turn}
			spots, wake := s.World.Nodeless(turns, s.Lean(turns), tc.others)
			if !wake.Equal(tc.wake) {
				t.Errorf("it is looked at again at %s, want %s", wake, tc.wake)
			}
			if tc.none != (len(spots) == 0) || len(spots) > 1 {
				t.Fatalf("%d spots", len(spots))
			}
			if tc.none {
				return
			}
			u := spots[0].Unit
			if u.Node != "pool/dead" || u.State != v1alpha1.UnitOutdated || u.Rank == 0 || u.Reason != tc.reason || !strings.Contains(u.Message, tc.says) {
				t.Errorf("the unit is %+v", u)
			}
		})
	}
}

// The turn of a machine without a Node deletes it and has another one made, unless it turns out to be alive.
func TestTurnOfNodeless(t *testing.T) {
	begin := func(t *testing.T) (*scene, *Turn) {
		t.Helper()
		s := failedLongAgo()
		spots, _ := s.World.Nodeless(nil, s.Lean(nil), nil)
		turn := s.Begin(&spots[0], "t", true)
		if turn.Node != "" || turn.NodeUID != "" || turn.Name() != "pool/dead" || turn.Phase != v1alpha1.MachineClaiming {
			t.Fatalf("the turn begins as %+v", turn)
		}
		return s, turn
	}
	joins := func(s *scene) {
		s.Nodes["n-dead"] = &Node{Node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n-dead", UID: "uid-dead"}, Spec: corev1.NodeSpec{ProviderID: "sky://dead"}}, Selected: true}
		s.index = nil
	}
	t.Run("goes", func(t *testing.T) {
		s, turn := begin(t)
		if s.Judge([]*Turn{turn}); turn.Phase != v1alpha1.MachineDeleting || turn.Step != StepDelete {
			t.Fatalf("it is %s, step %d: %s", turn.Phase, turn.Step, turn.Message)
		}
		s.missing("dead", time.Hour)
		s.set.Lost = 1
		if s.Judge([]*Turn{turn}); turn.Phase != v1alpha1.MachineAdding || turn.Step != StepAdd || turn.Absent != nil || turn.Name() == "" {
			t.Fatalf("it is %s, step %d: %s", turn.Phase, turn.Step, turn.Message)
		}
		turn.Replacement, turn.Phase = "new", v1alpha1.MachineJoining
		if s.Judge([]*Turn{turn}); !turn.Over || !turn.Updated {
			t.Errorf("it is not over: %+v", turn)
		}
	})
	t.Run("joins", func(t *testing.T) {
		s, turn := begin(t)
		joins(s)
		if s.Judge([]*Turn{turn}); !turn.Over || turn.Updated {
			t.Errorf("it goes on: %+v", turn)
		}
	})
	t.Run("joins when its deletion is written down", func(t *testing.T) {
		s, turn := begin(t)
		s.Judge([]*Turn{turn})
		turn.Operation = "o"
		s.set.Operations = []v1alpha1.CloudOperation{{Token: "o", Kind: v1alpha1.CloudOperationDelete}}
		joins(s)
		if s.Judge([]*Turn{turn}); turn.Node != "n-dead" || turn.Step != StepClaim || !s.Held["o"] {
			t.Errorf("its deletion is sent: %+v, held %v", turn, s.Held)
		}
	})
	t.Run("recovers", func(t *testing.T) {
		s, turn := begin(t)
		s.machine("dead").State = Running
		if s.Judge([]*Turn{turn}); !turn.Over || turn.Updated {
			t.Errorf("it goes on: %+v", turn)
		}
	})
	t.Run("is tried again by what is known of the turn", func(t *testing.T) {
		s, turn := begin(t)
		s.Retries = nil
		s.without("dead")
		turn.Machine, turn.Phase, turn.Replacement, turn.PhaseSince = "", v1alpha1.MachineJoining, "new", metav1.Time{Time: now.Add(-time.Hour)}
		delete(s.Nodes, "n-new")
		s.index = nil
		s.Judge([]*Turn{turn})
		if got := []any{turn.Over, turn.Failed != nil, turn.Unit.State}; !cmp.Equal(got, []any{false, true, v1alpha1.UnitFailed}) {
			t.Errorf("over, failed, state: %v", got)
		}
	})
}
