// SPDX-License-Identifier: Apache-2.0

package events

import (
	"cmp"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
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
	// HostsStarted: these nodes are in a turn. Names of nodes follow.
	HostsStarted = fixed[nodeRollout](normal, "Started", "Started on Nodes ")
	// HostsRebooting: these nodes are drained, and their hosts are ordered to reboot. The version may be empty. Names of nodes follow.
	HostsRebooting = about(normal, "Rebooting", func(_ nodeRollout, version string) string {
		return "Hosts are ordered to reboot into " + cmp.Or(version, "their update") + ": Nodes "
	})
	// HostsUpdated: the hosts of these nodes run the revision, and the nodes are healthy. The version may be empty. Names of nodes follow.
	HostsUpdated = about(normal, "Updated", func(_ nodeRollout, version string) string {
		if version == "" {
			return "Updated Nodes "
		}
		return "Updated to " + version + ": Nodes "
	})
	// HostsRolledBack: hosts return to their last complete version.
	HostsRolledBack = computed(warning, "RolledBack", func(r nodeRollout) string {
		return "Hosts are brought back to " + r.Status.LastComplete + ": more turns have failed with " + r.Status.RolledBack + " than the strategy allows"
	})
	// NodeFailed: a node's turn failed.
	NodeFailed = saying[nodeRollout](warning, "Failed", "%s")

	// MachineAdopted: Ducklett had begun to replace this node, and the rollout continues.
	MachineAdopted = saying[nodeRollout](normal, "Adopted", "Node %s is taken over from Ducklett in the middle of its replacement")
	// MachinesStarted: the machines of these nodes are being replaced. Names of nodes follow.
	MachinesStarted = fixed[nodeRollout](normal, "Started", "Replacing the machines of Nodes ")
	// MachinesAdded: these machines take the place of others. Their names follow.
	MachinesAdded = saying[nodeRollout](normal, "MachineAdded", "Added to scale set %s: ")
	// MachinesDraining: these nodes are claimed for their drain, and their replacements are ready. Names of nodes follow.
	MachinesDraining = fixed[nodeRollout](normal, "Draining", "Drains begin on Nodes ")
	// MachinesDeleted: these machines are gone, and their Nodes. Names of nodes follow, or of machines without a Node.
	MachinesDeleted = saying[nodeRollout](normal, "MachineDeleted", "Deleted from scale set %s: ")
	// MachinesReplaced: the turns of these new nodes have ended. Names of nodes follow.
	MachinesReplaced = saying[nodeRollout](normal, "Updated", "New in scale set %s, and well: Nodes ")
	// ScaleSetWell: a scale set can be read and changed again.
	ScaleSetWell = saying[nodeRollout](normal, "ScaleSetWell", "Scale set %s can be changed again")
)

// NodeRolloutWave: another wave is current, or the wave has another state.
func NodeRolloutWave(r *v1alpha1.NodeRollout, w *v1alpha1.WaveStatus) Event {
	return wave(r, w, "noderollout/"+r.Name)
}

// NodeRolloutComplete: every selected node is updated.
func NodeRolloutComplete(r *v1alpha1.NodeRollout) Event {
	total := ptr.Deref(r.Status.Counts, v1alpha1.UnitCounts{}).Total
	return Event{r, normal, "Complete", fmt.Sprintf("All %d nodes are updated", total)}
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

type budget = *v1alpha1.NodeDisruptionBudget

var (
	// BudgetInvalid: the budget has an error, so no rollout may take its nodes.
	BudgetInvalid = saying[budget](warning, string(v1alpha1.ReasonBudgetInvalid), "The budget can't be understood, no node may be taken: %s")
	// BudgetOpened: no gate blocks any more.
	BudgetOpened = fixed[budget](normal, "Opened", "Nothing blocks any more")
)

// BudgetBlocked: a gate keeps rollouts from taking the budget's nodes. The reason is the gate.
func BudgetBlocked(b *v1alpha1.NodeDisruptionBudget, gate v1alpha1.Reason, why string) Event {
	return Event{b, normal, string(gate), "No node may be taken: " + why}
}

// The Events about the Node of a turn, with the rollout as the related object. Each turn has one, at its end, because each costs a request a node.
// A turn in progress shows in the Node's annotations and conditions. The Events about the rollout name many nodes at once.

// onNodeOf is the Node of a rollout's turn.
type onNodeOf struct {
	*corev1.Node
	rollout runtime.Object
}

// NodeUpdated: the turn of this node is over. The version may be empty.
func NodeUpdated(node string, rollout runtime.Object, holder, version string, took time.Duration) Event {
	if version != "" {
		version = " to " + version
	}
	return Event{onNodeOf{newNode(node), rollout}, normal, "NodeUpdated", "Updated" + version + " by " + holder + in(took)}
}

// NodeReplaces: the turn is over in which this new node took the place of another. The other's name may be empty.
func NodeReplaces(node string, rollout runtime.Object, holder, other string, took time.Duration) Event {
	if other != "" {
		other = " in place of Node " + other
	}
	return Event{onNodeOf{newNode(node), rollout}, normal, "NodeUpdated", "Added" + other + " by " + holder + in(took)}
}

// NodeUpdateFailed: the turn of this node has failed.
func NodeUpdateFailed(node string, rollout runtime.Object, holder string, f *v1alpha1.ClaimFailure) Event {
	return Event{onNodeOf{newNode(node), rollout}, warning, "NodeUpdateFailed", holder + because(string(f.Reason), f.Message)}
}

func in(took time.Duration) string { return " in " + took.Round(time.Second).String() }

// NotificationsInvalid: the Secret with the webhooks has an error.
var NotificationsInvalid = saying[*corev1.Secret](warning, "Invalid", "No notification is sent: %s")
