// SPDX-License-Identifier: Apache-2.0

package events

import (
	"cmp"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"moult.dev/moult/api/v1alpha1"
)

// NodeRolloutInvalid: the spec can't be carried out.
func NodeRolloutInvalid(r *v1alpha1.NodeRollout, why string) Event {
	return Event{r, corev1.EventTypeWarning, "Invalid", "Nothing is done: " + why}
}

// NodeRolloutRevision: nodes are brought to something else than before.
func NodeRolloutRevision(r *v1alpha1.NodeRollout) Event {
	return Event{r, corev1.EventTypeNormal, "Revision", "Nodes are brought to " + r.Status.Revision}
}

// HostsStarted: these nodes are in a turn.
func HostsStarted(r *v1alpha1.NodeRollout, nodes []string) Event {
	return Event{r, corev1.EventTypeNormal, "Started", "Started on Nodes " + some(nodes)}
}

// HostRebooting: a node is drained, and its host is told to reboot. The version may have no name.
func HostRebooting(r *v1alpha1.NodeRollout, node, version string) Event {
	return Event{r, corev1.EventTypeNormal, "Rebooting", "The host of Node " + node + " is told to reboot into " + cmp.Or(version, "its update")}
}

// HostUpdated: a node's host runs what it should, and its node is well. The version may have no name.
func HostUpdated(r *v1alpha1.NodeRollout, node, version string) Event {
	text := "Node " + node + " is updated"
	if version != "" {
		text += " to " + version
	}
	return Event{r, corev1.EventTypeNormal, "Updated", text}
}

// HostFailed: a node's turn failed.
func HostFailed(r *v1alpha1.NodeRollout, why string) Event {
	return Event{r, corev1.EventTypeWarning, "Failed", why}
}

// NodeRolloutWave: the rollout has come to another wave, or the wave to another state.
func NodeRolloutWave(r *v1alpha1.NodeRollout, w *v1alpha1.WaveStatus) Event {
	return wave(r, w, "noderollout/"+r.Name)
}

// NodeRolloutHalted: nothing new is started until somebody acts.
func NodeRolloutHalted(r *v1alpha1.NodeRollout, why string) Event {
	return Event{r, corev1.EventTypeWarning, "Halted", "No more nodes are started: " + why}
}

// NodeRolloutComplete: every selected node is updated.
func NodeRolloutComplete(r *v1alpha1.NodeRollout) Event {
	n := int32(0)
	if r.Status.Counts != nil {
		n = r.Status.Counts.Total
	}
	return Event{r, corev1.EventTypeNormal, "Complete", fmt.Sprintf("All %d nodes are updated", n)}
}
