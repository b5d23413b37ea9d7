// SPDX-License-Identifier: Apache-2.0

package events

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// onNode returns the constructor of an Event about the node that the controller runs on. As in the kubelet's own Events, the uid
// is the node's name, because kubectl describe finds it by that.
func onNode(kind, reason, what string) func(node, name string) Event {
	return func(node, name string) Event {
		return Event{&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node, UID: types.UID(node)}}, kind, reason, name + what}
	}
}

var (
	// ControllerStarting: the controller is about to start on this node.
	ControllerStarting = onNode(normal, "Starting", " is starting")
	// ControllerStarted: the controller watches.
	ControllerStarted = onNode(normal, "Started", " has started")
)

// ControllerStartFailed: the controller could not start.
func ControllerStartFailed(node, name string, err error) Event {
	return onNode(warning, "StartFailed", " could not start: "+err.Error())(node, name)
}
