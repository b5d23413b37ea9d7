// SPDX-License-Identifier: Apache-2.0

package events

import (
	"cmp"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"moult.dev/moult/api/v1alpha1"
)

// MachinesStarted: the machines of these nodes are being replaced.
func MachinesStarted(r *v1alpha1.NodeRollout, nodes []string) Event {
	return Event{r, corev1.EventTypeNormal, "Started", "The machines of Nodes " + some(nodes) + " are being replaced"}
}

// MachineAdopted: a node is taken over that Ducklett was replacing.
func MachineAdopted(r *v1alpha1.NodeRollout, node string) Event {
	return Event{r, corev1.EventTypeNormal, "Adopted", "Node " + node + " is taken over from Ducklett in the middle of its replacement"}
}

// MachineAdded: a machine has come that takes the place of a node's.
func MachineAdded(r *v1alpha1.NodeRollout, t *v1alpha1.MachineTurn) Event {
	return Event{r, corev1.EventTypeNormal, "MachineAdded", fmt.Sprintf("Machine %s of scale set %s takes the place of %s",
		t.Replacement, t.ScaleSet, cmp.Or(t.Node, t.Machine, "one that is gone"))}
}

// MachineDraining: the replacement is ready, and the node is claimed for its drain.
func MachineDraining(r *v1alpha1.NodeRollout, t *v1alpha1.MachineTurn) Event {
	text := "Node " + t.Node + " is drained"
	if t.ReplacementNode != "" {
		text += ": its replacement, Node " + t.ReplacementNode + ", is ready"
	}
	return Event{r, corev1.EventTypeNormal, "Draining", text}
}

// MachineDeleted: the machine of a node is gone, and the node with it; or it never had one. before is the turn as it was.
func MachineDeleted(r *v1alpha1.NodeRollout, t, before *v1alpha1.MachineTurn) Event {
	what := "The machine of Node " + before.Node
	if before.Node == "" {
		what = "Machine " + before.Machine + ", which has no Node,"
	}
	return Event{r, corev1.EventTypeNormal, "MachineDeleted", fmt.Sprintf("%s in scale set %s is deleted", what, t.ScaleSet)}
}

// MachineReplaced: the turn is over.
func MachineReplaced(r *v1alpha1.NodeRollout, t *v1alpha1.MachineTurn) Event {
	return Event{r, corev1.EventTypeNormal, "Updated", fmt.Sprintf("Node %s of scale set %s has taken its place, and is well", cmp.Or(t.ReplacementNode, t.Replacement), t.ScaleSet)}
}

// MachineDiscarded: a machine is taken back that was to take a place.
func MachineDiscarded(r *v1alpha1.NodeRollout, t *v1alpha1.MachineTurn, why string) Event {
	return Event{r, corev1.EventTypeNormal, "MachineDiscarded", fmt.Sprintf("Machine %s of scale set %s is deleted again: %s", t.Replacement, t.ScaleSet, why)}
}

// MachineFailed: a turn failed.
func MachineFailed(r *v1alpha1.NodeRollout, why string) Event {
	return Event{r, corev1.EventTypeWarning, "Failed", why}
}

// ScaleSetTrouble: a scale set can't be looked at or changed.
func ScaleSetTrouble(r *v1alpha1.NodeRollout, s *v1alpha1.ScaleSetStatus) Event {
	return Event{r, corev1.EventTypeWarning, string(s.Reason), "Scale set " + s.Name + ": " + s.Message}
}

// ScaleSetWell: a scale set can be looked at and changed again.
func ScaleSetWell(r *v1alpha1.NodeRollout, name string) Event {
	return Event{r, corev1.EventTypeNormal, "ScaleSetWell", "Scale set " + name + " can be changed again"}
}

// RollbackImpossible: the image before is to be put back, and can't be.
func RollbackImpossible(r *v1alpha1.NodeRollout, why string) Event {
	return Event{r, corev1.EventTypeWarning, "RollbackImpossible", "More turns have failed than the strategy bears, and no image is put back: " + why}
}

// RolledBack: the image before has been put back.
func RolledBack(r *v1alpha1.NodeRollout, set, from, to string) Event {
	return Event{r, corev1.EventTypeWarning, "RolledBack", fmt.Sprintf("Scale set %s has got image %s back: more turns have failed with %s than the strategy bears", set, to, from)}
}
