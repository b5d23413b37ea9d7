// SPDX-License-Identifier: Apache-2.0

package events

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// onNode is an Event about the node that the controller runs on. As in the kubelet's own Events, the uid is the node's name: kubectl describe
// finds it by that.
func onNode(node, kind, reason, message string) Event {
	return Event{&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node, UID: types.UID(node)}}, kind, reason, message}
}

// ControllerStarting: the controller is about to start on this node.
func ControllerStarting(node, name string) Event {
	return onNode(node, normal, "Starting", name+" is starting")
}

// ControllerStarted: the controller watches.
func ControllerStarted(node, name string) Event {
	return onNode(node, normal, "Started", name+" has started")
}

// ControllerStartFailed: the controller could not start.
func ControllerStartFailed(node, name string, err error) Event {
	return onNode(node, warning, "StartFailed", name+" could not start: "+err.Error())
}
