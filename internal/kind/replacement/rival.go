// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"moult.dev/moult/api/v1alpha1"
)

// Rival is a turn of another NodeRollout.
type Rival struct {
	v1alpha1.MachineTurn
	// Rollout is the NodeRollout's name, and First is true where it was made before this one.
	Rollout string
	First   bool
}

// Rivals finds turns of other NodeRollouts by what they are about.
type Rivals struct {
	machines map[string][]*Rival
	nodes    map[types.UID][]*Rival
}

// Add takes one in. Without here it is in another cloud, or it can't be told in which: its machines say nothing then, and its Node alone counts.
func (r *Rivals) Add(rival *Rival, here bool) {
	if r.nodes == nil {
		r.machines, r.nodes = map[string][]*Rival{}, map[types.UID][]*Rival{}
	}
	if rival.NodeUID != "" {
		r.nodes[rival.NodeUID] = append(r.nodes[rival.NodeUID], rival)
	}
	for _, id := range []string{rival.Machine, rival.Replacement} {
		if id != "" && here {
			key := disputed(rival.ScaleSet, id)
			r.machines[key] = append(r.machines[key], rival)
		}
	}
}

// disputed names a machine, whatever way its set's name is written in.
func disputed(set, id string) string { return LastOf(set) + "/" + strings.ToLower(id) }

func (r *Rivals) of(set, machine string, node types.UID) []*Rival {
	all := r.machines[disputed(set, machine)]
	if node != "" {
		all = append(slices.Clip(all), r.nodes[node]...)
	}
	return all
}

// Disputed says which other NodeRollout has a turn that a machine has a part in, or "". Both would add a machine for it, and one of them would stay.
func (w *World) Disputed(s *Set, m *Machine, n *Node) string {
	for _, rival := range w.Rivals.of(s.Name, m.ID, n.UID) {
		return "machine " + m.ID + " is in a turn of NodeRollout " + rival.Rollout
	}
	return ""
}

// yields says why a turn is left to another NodeRollout, or "": both have begun one for the same machine, as neither could see that of the other yet. Whoever
// has claimed the node goes on, and else whoever was made first.
func (w *World) yields(t *Turn, n *Node) string {
	switch t.Phase {
	case v1alpha1.MachineAdding, v1alpha1.MachineJoining, v1alpha1.MachineClaiming:
	default:
		return ""
	}
	if n != nil && n.Claim != nil && n.Claim.Turn == t.Turn {
		return ""
	}
	for _, rival := range w.Rivals.of(t.ScaleSet, t.Machine, t.NodeUID) {
		goes := false
		switch rival.Phase {
		case v1alpha1.MachineAdding, v1alpha1.MachineJoining, v1alpha1.MachineClaiming:
			goes = rival.First
		case v1alpha1.MachineDraining, v1alpha1.MachineLeaving, v1alpha1.MachineDeleting:
			goes = true
		default:
		}
		if goes && (strings.EqualFold(rival.Machine, t.Machine) || t.NodeUID != "" && rival.NodeUID == t.NodeUID) {
			return "machine " + t.Machine + " is in a turn of NodeRollout " + rival.Rollout
		}
	}
	return ""
}
