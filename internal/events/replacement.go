// SPDX-License-Identifier: Apache-2.0

package events

import (
	"cmp"
	"fmt"

	"moult.dev/moult/api/v1alpha1"
)

// The Events of a NodeRollout that replaces machines.
var (
	// MachineAdopted: Ducklett had begun to replace this node, and the rollout continues.
	MachineAdopted = saying[nodeRollout](normal, "Adopted", "Node %s is taken over from Ducklett in the middle of its replacement")
	// MachineFailed: a turn failed.
	MachineFailed = HostFailed
	// MachinesStarted: the machines of these nodes are being replaced.
	MachinesStarted = about(normal, "Started", func(_ nodeRollout, nodes []string) string {
		return "The machines of Nodes " + some(nodes) + " are being replaced"
	})
	// MachineReplaced: the turn has ended.
	MachineReplaced = about(normal, "Updated", func(_ nodeRollout, t *v1alpha1.MachineTurn) string {
		return fmt.Sprintf("Node %s of scale set %s has taken its place, and is well", cmp.Or(t.ReplacementNode, t.Replacement), t.ScaleSet)
	})
	// ScaleSetWell: a scale set can be read and changed again.
	ScaleSetWell = saying[nodeRollout](normal, "ScaleSetWell", "Scale set %s can be changed again")
	// RollbackImpossible: the previous image can't be restored.
	RollbackImpossible = saying[nodeRollout](warning, "RollbackImpossible", "More turns have failed than the strategy allows, and no image is restored: %s")
)

// MachineAdded: a replacement was added.
func MachineAdded(r *v1alpha1.NodeRollout, t *v1alpha1.MachineTurn) Event {
	return Event{r, normal, "MachineAdded", fmt.Sprintf("Machine %s of scale set %s takes the place of %s",
		t.Replacement, t.ScaleSet, cmp.Or(t.Node, t.Machine, "one that is gone"))}
}

// MachineDraining: the replacement is ready, and the node is claimed for its drain.
func MachineDraining(r *v1alpha1.NodeRollout, t *v1alpha1.MachineTurn) Event {
	text := "Node " + t.Node + " is drained"
	if t.ReplacementNode != "" {
		text += ": its replacement, Node " + t.ReplacementNode + ", is ready"
	}
	return Event{r, normal, "Draining", text}
}

// MachineDeleted: a machine and its node are gone. before is the turn before the deletion; it may have had no Node.
func MachineDeleted(r *v1alpha1.NodeRollout, t, before *v1alpha1.MachineTurn) Event {
	what := "The machine of Node " + before.Node
	if before.Node == "" {
		what = "Machine " + before.Machine + ", which has no Node,"
	}
	return Event{r, normal, "MachineDeleted", fmt.Sprintf("%s in scale set %s is deleted", what, t.ScaleSet)}
}

// MachineDiscarded: a replacement is deleted, because the turn is no longer wanted.
func MachineDiscarded(r *v1alpha1.NodeRollout, t *v1alpha1.MachineTurn, why string) Event {
	return Event{r, normal, "MachineDiscarded", fmt.Sprintf("Machine %s of scale set %s is deleted again: %s", t.Replacement, t.ScaleSet, why)}
}

// ScaleSetTrouble: a scale set can't be read or changed.
func ScaleSetTrouble(r *v1alpha1.NodeRollout, s *v1alpha1.ScaleSetStatus) Event {
	return Event{r, warning, string(s.Reason), "Scale set " + s.Name + ": " + s.Message}
}

// RolledBack: the previous image is restored.
func RolledBack(r *v1alpha1.NodeRollout, set, from, to string) Event {
	return Event{r, warning, "RolledBack", fmt.Sprintf("Scale set %s has image %s again: more turns have failed with %s than the strategy allows", set, to, from)}
}
