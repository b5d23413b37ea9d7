// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"moult.dev/moult/api/v1alpha1"
)

// Nodeless reports whether the spot is a machine that never had a Node.
func (p *Spot) Nodeless() bool { return p.Name == "" }

// Nodeless judges outdated machines that have failed without ever having had a Node. They are replaced in turns without surge: nothing runs on them, and
// there is no Node to remember why a turn was given up. What may be somebody else's, or somebody's Node, is left alone. others are the sets that another
// rollout is for, by their names. wake is when the clock alone changes something.
func (w *World) Nodeless(turns []*Turn, lean map[string]Room, others map[string]string) (spots []Spot, wake time.Time) {
	if w.ControlPlane || w.MatchOSImage {
		return nil, wake // It may be a member of etcd, or only its Node could tell what it is made of.
	}
	for _, name := range slices.Sorted(maps.Keys(w.Sets)) {
		s := w.Sets[name]
		for i := range s.Machines {
			m := &s.Machines[i]
			if m.State != Failed || m.UpToDate || w.NodeOf(m) != nil || Taken(turns, s.Name, m.ID) || s.promised(m.ID) || !w.owns(s) {
				continue
			}
			p := Spot{Node: &Node{Node: &corev1.Node{}, Selected: true}, Set: s, Machine: m, Counted: true}
			u := &p.Unit
			u.Node, u.State, u.Rank = unitOf(s.Name, m.ID), v1alpha1.UnitOutdated, w.Rank(types.UID(unitOf(s.Name, m.ID)))
			joins := m.Created.Add(w.Timeout)
			switch {
			case w.DetectOnly:
				u.Reason, u.Message = w.hindrance(s, m, p.Node, Room{})
			case others[name] != "":
				u.Reason, u.Message = v1alpha1.ReasonMachineUnknown, "NodeRollout "+others[name]+" is for scale set "+name+" as well"
			case w.mayBe(m) != "":
				u.Reason, u.Message = v1alpha1.ReasonMachineUnknown, w.mayBe(m)
			case m.Created.IsZero():
				u.Reason, u.Message = v1alpha1.ReasonMachineUnknown, "it is not known when machine "+m.ID+" was made, which has failed and has no Node"
			case w.Now.Before(joins):
				u.Reason, u.Message = v1alpha1.ReasonScaleSetBusy, fmt.Sprintf("machine %s has failed, and may still join until %s", m.ID, joins.UTC().Format(time.RFC3339))
				if wake.IsZero() || joins.Before(wake) {
					wake = joins
				}
			default:
				u.Reason, u.Message = w.hindrance(s, m, p.Node, lean[name])
			}
			spots = append(spots, p)
		}
	}
	return spots, wake
}

// Lean says how many turns without surge may begin in each set.
func (w *World) Lean(turns []*Turn) map[string]Room {
	rooms := map[string]Room{}
	for name, s := range w.Sets {
		rooms[name] = s.lean(s.usage(turns), v1alpha1.MaxMachineTurns-len(turns))
	}
	return rooms
}

// unitOf names the unit of a machine that has no Node.
func unitOf(set, id string) string { return set + "/" + id }

// owns reports whether every machine of a set is the rollout's: it selects all Nodes of that, and there are some, or the set is named in its spec.
func (w *World) owns(s *Set) bool {
	named := slices.Contains(w.ScaleSets, s.Name)
	if !s.Known || len(w.ScaleSets) > 0 && !named {
		return false
	}
	some := false
	for i := range s.Machines {
		if n := w.NodeOf(&s.Machines[i]); n != nil {
			if !n.Selected {
				return false
			}
			some = true
		}
	}
	return some || named
}

// mayBe says which Node may be that of a machine that seems to have none, or "".
func (w *World) mayBe(m *Machine) string {
	if n := w.Nodes[m.NodeName]; m.NodeName != "" && n != nil {
		return "Node " + n.Name + " has the name that machine " + m.ID + " is to have, and says that it is another: " + n.Spec.ProviderID
	}
	for _, name := range slices.Sorted(maps.Keys(w.Nodes)) {
		n := w.Nodes[name]
		if _, placed := w.placeOf(n); !placed && (n.Selected || n.Spec.ProviderID == "" && m.NodeName == "") {
			return "Node " + name + " is of a machine that is not known, and may be that of machine " + m.ID
		}
	}
	return ""
}
