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
	"moult.dev/moult/internal/rollout"
)

// wreck is a scene in which machine "dead" has been seen to have failed for an hour, without a Node, and nothing else is to be done.
type wreck struct {
	*scene
	spots []Spot
}

func failedLongAgo() *wreck {
	s := &wreck{newScene(v1alpha1.MachineSoaking), nil}
	s.turn.Over = true
	s.Wrecks, s.Others = map[string]time.Time{"pool/dead": now.Add(-time.Hour)}, map[string]string{}
	s.set.Machines = append(s.set.Machines, Machine{ID: "dead", ProviderID: "sky://dead", NodeName: "n-dead", Zone: "b", State: Failed, Created: now.Add(-2 * time.Hour)})
	s.spots = []Spot{{Node: s.Nodes["n-other"], Set: s.set, Machine: s.machine("other"), Counted: true, Unit: rollout.Unit{Node: "n-other", State: v1alpha1.UnitUpdated}}}
	return s
}

func TestNodeless(t *testing.T) {
	stranger := func(s *wreck, change func(*Node)) {
		n := &Node{Node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "stranger"}}}
		change(n)
		s.Nodes[n.Name] = n
	}
	all := func(change func(*Node)) func(*wreck) {
		return func(s *wreck) {
			for _, n := range s.Nodes {
				change(n)
			}
		}
	}
	for _, tc := range []struct {
		name   string
		change func(*wreck)
		// none is true where it is left alone. Where it may go there is no reason.
		none   bool
		reason v1alpha1.Reason
		says   string
		wake   time.Time
	}{
		{name: "goes", change: func(*wreck) {}},
		{name: "is of the latest model", change: func(s *wreck) { s.machine("dead").UpToDate = true }, none: true},
		{name: "runs", change: func(s *wreck) { s.machine("dead").State = Running }, none: true},
		{name: "has a Node", change: func(s *wreck) { stranger(s, func(n *Node) { n.Spec.ProviderID = "sky://DEAD" }) }, none: true},
		{name: "is of a control plane", change: func(s *wreck) { s.ControlPlane = true }, none: true},
		{name: "is among those of a control plane", change: all(func(n *Node) {
			n.Labels = map[string]string{"node-role.kubernetes.io/control-plane": ""}
		}), none: true},
		{name: "only its Node could tell", change: func(s *wreck) { s.MatchOSImage = true }, none: true},
		{name: "the cloud replaces it", change: func(s *wreck) { s.set.Heals = true }, none: true},
		{name: "is in a turn", change: func(s *wreck) { s.turn.Machine = "dead" }, none: true},
		{name: "is to be some turn's", change: func(s *wreck) {
			s.set.Operations = []v1alpha1.CloudOperation{{Token: "o", Kind: v1alpha1.CloudOperationAdd}}
			s.set.Added = map[string][]string{"o": {"dead"}}
		}, none: true},
		{name: "some of the set are not selected", change: func(s *wreck) { s.Nodes["n-other"].Selected = false }, none: true},
		{name: "some are opted out", change: func(s *wreck) { s.Nodes["n-other"].OptedOut = true }},
		{name: "all are opted out", change: all(func(n *Node) { n.OptedOut = true }), none: true},
		{name: "the set is another rollout's by name", change: func(s *wreck) { s.ScaleSets = []string{"other"} }, none: true},
		{name: "the set is another rollout's as well", change: func(s *wreck) { s.Others = map[string]string{"pool": "two"} }, none: true},
		{name: "no Node is of the set", change: func(s *wreck) { s.Nodes, s.ScaleSets = map[string]*Node{}, []string{"pool"} }, none: true},
		{name: "the set is not known", change: func(s *wreck) { s.set.Known = false }, none: true},
		{name: "the set has as few as it may", change: func(s *wreck) { s.set.Min = 4 }, none: true},
		{name: "a Node of another machine has its name", change: func(s *wreck) {
			stranger(s, func(n *Node) { n.Name, n.Spec.ProviderID = "n-dead", "sky://x" })
		}, none: true},
		{name: "a selected Node is of some other machine", change: func(s *wreck) {
			stranger(s, func(n *Node) { n.Selected, n.Spec.ProviderID = true, "sky://x" })
		}},
		{name: "a selected Node may be of this machine", change: func(s *wreck) {
			stranger(s, func(n *Node) { n.Selected, n.Spec.ProviderID = true, "earth://x" })
		}, none: true},
		{name: "a Node says in another way that it is", change: func(s *wreck) {
			stranger(s, func(n *Node) { n.Spec.ProviderID = "earth://zone/Dead" })
		}, none: true},
		{name: "a Node says in another way that it is another", change: func(s *wreck) {
			stranger(s, func(n *Node) { n.Spec.ProviderID = "earth://zone/x" })
		}},
		{name: "a Node does not say what it is", change: func(s *wreck) { stranger(s, func(*Node) {}) }},
		{name: "nor is it known what it is to be called", change: func(s *wreck) {
			stranger(s, func(*Node) {})
			s.machine("dead").NodeName = ""
		}, none: true},
		{name: "may still join", change: func(s *wreck) { s.Wrecks["pool/dead"] = now.Add(-9 * time.Minute) }, reason: v1alpha1.ReasonScaleSetBusy, says: "may still join until",
			wake: now.Add(time.Minute)},
		{name: "was made since by another clock", change: func(s *wreck) { s.machine("dead").Created = now.Add(time.Minute) }, reason: v1alpha1.ReasonScaleSetBusy, wake: now.Add(11 * time.Minute)},
		{name: "another has failed", change: func(s *wreck) {
			s.turn.Over, s.turn.Node, s.turn.Machine, s.turn.Failed = false, "", "dead2", &v1alpha1.ClaimFailure{}
		}},
		{name: "is seen for the first time", change: func(s *wreck) { s.Wrecks = nil }, reason: v1alpha1.ReasonScaleSetBusy, says: "may still join until", wake: now.Add(10 * time.Minute)},
		{name: "only detects", change: func(s *wreck) { s.DetectOnly = true }, reason: v1alpha1.ReasonDetectOnly},
		{name: "is protected", change: func(s *wreck) { s.machine("dead").Protected = true }, reason: v1alpha1.ReasonMachineProtected},
		{name: "the set is unfit", change: func(s *wreck) { s.set.Unfit = "no" }, reason: v1alpha1.ReasonScaleSetUnfit},
		{name: "there is no room", change: func(s *wreck) { s.set.NoRoom, s.set.NoRoomMessage = v1alpha1.ReasonCloudQuota, "none left" }, reason: v1alpha1.ReasonCloudQuota, says: "none left"},
		{name: "there was no room", change: func(s *wreck) { s.set.Careful = true }, reason: v1alpha1.ReasonCloudQuota, says: "no other machine was added"},
		{name: "a turn goes on", change: func(s *wreck) { s.turn.Over = false }, reason: v1alpha1.ReasonReplacementPending, says: "go first"},
		{name: "a node is to go", change: func(s *wreck) { s.spots[0].Unit.State = v1alpha1.UnitOutdated }, reason: v1alpha1.ReasonReplacementPending, says: "go first"},
		{name: "a node is to go that can't", change: func(s *wreck) {
			s.spots[0].Unit.State, s.spots[0].Unit.Reason = v1alpha1.UnitOutdated, v1alpha1.ReasonMachineProtected
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := failedLongAgo()
			tc.change(s)
			spots, wake := s.World.Nodeless([]*Turn{s.turn}, s.spots)
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
			if u.Node != "pool/dead" || u.State != v1alpha1.UnitOutdated || !u.Nodeless || u.Rank == 0 || u.Reason != tc.reason || !strings.Contains(u.Message, tc.says) {
				t.Errorf("the unit is %+v", u)
			}
		})
	}
	t.Run("one at a time", func(t *testing.T) {
		s := failedLongAgo()
		other := *s.machine("dead")
		other.ID, other.ProviderID, other.NodeName = "dead2", "sky://dead2", "n-dead2"
		s.set.Machines = append(s.set.Machines, other)
		s.Wrecks["pool/dead2"] = now.Add(-time.Hour)
		spots, _ := s.World.Nodeless([]*Turn{s.turn}, s.spots)
		if len(spots) != 2 || spots[0].Unit.Reason != "" || spots[1].Unit.Reason != v1alpha1.ReasonReplacementPending {
			t.Errorf("the spots are %+v", spots)
		}
	})
}

// The turn of a machine without a Node deletes it and has another one made, unless it turns out to be alive.
func TestTurnOfNodeless(t *testing.T) {
	begin := func(t *testing.T) (*wreck, *Turn) {
		t.Helper()
		s := failedLongAgo()
		spots, _ := s.World.Nodeless(nil, s.spots)
		turn := s.Begin(&spots[0], "t", true)
		if turn.Node != "" || turn.NodeUID != "" || turn.UnitName() != "pool/dead" || turn.Phase != v1alpha1.MachineClaiming {
			t.Fatalf("the turn begins as %+v", turn)
		}
		return s, turn
	}
	joins := func(s *wreck) {
		s.Nodes["n-dead"] = &Node{Node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n-dead", UID: "uid-dead"}, Spec: corev1.NodeSpec{ProviderID: "sky://dead"}}, Selected: true}
		s.index = nil
	}
	t.Run("goes", func(t *testing.T) {
		s, turn := begin(t)
		if s.Judge([]*Turn{turn}); turn.Phase != v1alpha1.MachineClaiming || !turn.Claimable || turn.Unit.State != v1alpha1.UnitOutdated || !turn.Unit.InTurn {
			t.Fatalf("it is %s, step %d: %s, %+v", turn.Phase, turn.Step, turn.Message, turn.Unit)
		}
		turn.Phase = v1alpha1.MachineDeleting // It may go.
		if s.Judge([]*Turn{turn}); turn.Phase != v1alpha1.MachineDeleting || turn.Step != StepDelete {
			t.Fatalf("it is %s, step %d: %s", turn.Phase, turn.Step, turn.Message)
		}
		(&Batch{Set: s.set, Kind: v1alpha1.CloudOperationDelete, Turns: []*Turn{turn}}).Ordered(v1alpha1.CloudOperation{Token: "o", Kind: v1alpha1.CloudOperationDelete})
		s.Refused(s.set, "o", []*Turn{turn}, false, "it is being deleted")
		s.missing("dead", time.Hour)
		s.set.Lost = 1
		if s.Judge([]*Turn{turn}); turn.Phase != v1alpha1.MachineAdding || turn.Step != StepAdd || turn.Absent != nil || turn.UnitName() == "" {
			t.Fatalf("it is %s, step %d: %s", turn.Phase, turn.Step, turn.Message)
		}
		turn.Replacement, turn.Phase = "new", v1alpha1.MachineJoining
		if s.Judge([]*Turn{turn}); !turn.Over || !turn.Updated {
			t.Errorf("it is not over: %+v", turn)
		}
	})
	t.Run("is taken away before it is ordered", func(t *testing.T) {
		s, turn := begin(t)
		turn.Phase = v1alpha1.MachineDeleting
		s.missing("dead", time.Hour)
		s.set.Lost = 1
		if s.Judge([]*Turn{turn}); !turn.Over || turn.Updated {
			t.Errorf("another is asked for: %+v", turn)
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
		turn.Phase, turn.Operation = v1alpha1.MachineDeleting, "o"
		s.set.Operations = []v1alpha1.CloudOperation{{Token: "o", Kind: v1alpha1.CloudOperationDelete}}
		joins(s)
		if s.Judge([]*Turn{turn}); turn.Node != "n-dead" || turn.Step != StepClaim || !s.Held["o"] {
			t.Errorf("its deletion is sent: %+v, held %v", turn, s.Held)
		}
	})
	for name, change := range map[string]func(*wreck){
		"recovers":               func(s *wreck) { s.machine("dead").State = Running },
		"a Node is not selected": func(s *wreck) { s.Nodes["n-other"].Selected = false },
		"all are opted out": func(s *wreck) {
			for _, n := range s.Nodes {
				n.OptedOut = true
			}
		},
		"a Node has its name": func(s *wreck) {
			s.Nodes["n-dead"] = &Node{Node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n-dead"}, Spec: corev1.NodeSpec{ProviderID: "sky://x"}}}
		},
		"the set has as few as it may": func(s *wreck) { s.set.Min = s.set.Capacity },
		"there is no room":             func(s *wreck) { s.set.NoRoom = v1alpha1.ReasonCloudQuota },
		"nodes are to go first again":  func(s *wreck) { s.set.Model, s.Revision = "3", "three" },
		"something else is to come":    func(s *wreck) { s.Revision = "three" },
		"others are not known":         func(s *wreck) { s.Others = nil },
		"another rollout has come":     func(s *wreck) { s.Others = map[string]string{"pool": "two"} },
	} {
		t.Run(name, func(t *testing.T) {
			for _, phase := range []v1alpha1.MachinePhase{v1alpha1.MachineClaiming, v1alpha1.MachineDeleting} {
				s, turn := begin(t)
				turn.Phase = phase
				change(s)
				s.index = nil
				if s.Judge([]*Turn{turn}); !turn.Over || turn.Updated {
					t.Errorf("it goes on: %+v", turn)
				}
			}
		})
	}
	t.Run("is not deleted", func(t *testing.T) {
		s, turn := begin(t)
		turn.Phase, turn.Operation = v1alpha1.MachineDeleting, "o"
		s.set.Operations = []v1alpha1.CloudOperation{{Token: "o", Kind: v1alpha1.CloudOperationDelete, Sent: true}}
		s.set.Ended = map[string]Ended{"o": {Message: "a lock", At: now.Add(-time.Minute)}}
		s.Retries = &v1alpha1.Retries{Limit: 1, Backoff: &metav1.Duration{Duration: time.Minute}}
		for range 2 {
			s.Judge([]*Turn{turn})
			if u := turn.Unit; turn.Over || turn.Step != StepNone || u.State != v1alpha1.UnitFailed || !u.Skipped || !u.Nodeless || u.Reason != v1alpha1.ReasonDeleteFailed || u.RetryAt.IsZero() {
				t.Fatalf("it is not remembered: %+v", turn)
			}
		}
		s.Now = now.Add(2 * time.Minute)
		if s.Judge([]*Turn{turn}); turn.Phase != v1alpha1.MachineClaiming || turn.Failed != nil || turn.Failures != 1 || !turn.Claimable {
			t.Fatalf("it is not tried again: %+v", turn)
		}
		s.fail(turn, v1alpha1.ReasonDeleteFailed, "a lock")
		s.Now = now.Add(time.Hour)
		if s.Judge([]*Turn{turn}); turn.Over || turn.Failed == nil || !turn.Unit.RetryAt.IsZero() {
			t.Fatalf("it is tried too often: %+v", turn)
		}
		machines := s.set.Machines
		s.set.Known, s.set.Machines = false, nil
		if s.Judge([]*Turn{turn}); turn.Over || turn.Failed == nil {
			t.Fatalf("it is forgotten while the set is not known: %+v", turn)
		}
		s.set.Known, s.set.Machines = true, machines
		asked := *turn
		s.set.Model = "3"
		if s.Judge([]*Turn{&asked}); !asked.Over {
			t.Fatalf("it does not begin anew for something else: %+v", asked)
		}
		s.set.Model = "2"
		s.fail(turn, v1alpha1.ReasonDeleteFailed, "a lock")
		joins(s)
		if s.Judge([]*Turn{turn}); !turn.Over {
			t.Fatalf("its Node has joined: %+v", turn)
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
