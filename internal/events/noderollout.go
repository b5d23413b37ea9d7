// SPDX-License-Identifier: Apache-2.0

package events

import (
	"cmp"
	"fmt"

	"k8s.io/utils/ptr"

	"moult.dev/moult/api/v1alpha1"
)

type nodeRollout = *v1alpha1.NodeRollout

// The Events of a NodeRollout.
var (
	// NodeRolloutInvalid: the spec has an error.
	NodeRolloutInvalid = saying[nodeRollout](warning, "Invalid", "Nothing is done: %s")
	// NodeRolloutHalted: nothing new is started until a person acts.
	NodeRolloutHalted = saying[nodeRollout](warning, "Halted", "No more nodes are started: %s")
	// NodeRolloutRevision: the rollout has another revision than before.
	NodeRolloutRevision = computed(normal, "Revision", func(r nodeRollout) string { return "Nodes are brought to " + r.Status.Revision })
	// HostsStarted: these nodes are in a turn.
	HostsStarted = about(normal, "Started", func(_ nodeRollout, nodes []string) string { return "Started on Nodes " + some(nodes) })
	// HostFailed: a node's turn failed.
	HostFailed = saying[nodeRollout](warning, "Failed", "%s")
)

// HostRebooting: a node is drained, and its host is ordered to reboot. The version may be empty.
func HostRebooting(r *v1alpha1.NodeRollout, node, version string) Event {
	return Event{r, normal, "Rebooting", "The host of Node " + node + " is ordered to reboot into " + cmp.Or(version, "its update")}
}

// HostUpdated: a node's host runs the revision, and the node is healthy. The version may be empty.
func HostUpdated(r *v1alpha1.NodeRollout, node, version string) Event {
	text := "Node " + node + " is updated"
	if version != "" {
		text += " to " + version
	}
	return Event{r, normal, "Updated", text}
}

// NodeRolloutWave: another wave is current, or the wave has another state.
func NodeRolloutWave(r *v1alpha1.NodeRollout, w *v1alpha1.WaveStatus) Event {
	return wave(r, w, "noderollout/"+r.Name)
}

// NodeRolloutComplete: every selected node is updated.
func NodeRolloutComplete(r *v1alpha1.NodeRollout) Event {
	total := ptr.Deref(r.Status.Counts, v1alpha1.UnitCounts{}).Total
	return Event{r, normal, "Complete", fmt.Sprintf("All %d nodes are updated", total)}
}
