// SPDX-License-Identifier: Apache-2.0

package events

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"moult.dev/moult/api/v1alpha1"
)

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
