// SPDX-License-Identifier: Apache-2.0

package events

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
)

// The Events of an ExtendedDaemonSet that begin with Create or Update, and their messages, are those of ExtendedDaemonSet.

// ReplicaSetCreated: there is a new revision.
func ReplicaSetCreated(d *edsv1.ExtendedDaemonSet, name string) Event {
	return Event{d, corev1.EventTypeNormal, "Create ExtendedDaemonSetReplicaSet", d.Namespace + "/" + name}
}

// ReplicaSetDeleted: an old revision is forgotten.
func ReplicaSetDeleted(d *edsv1.ExtendedDaemonSet, name string) Event {
	return Event{d, corev1.EventTypeNormal, "Delete ExtendedDaemonSetReplicaSet", d.Namespace + "/" + name}
}

// ReplicaSetActivated: another revision is the one that all nodes are to have.
func ReplicaSetActivated(d *edsv1.ExtendedDaemonSet, name string) Event {
	return Event{d, corev1.EventTypeNormal, "Activated", "All nodes are brought to " + name}
}

// CanaryStarted: a revision is tried on these nodes.
func CanaryStarted(d *edsv1.ExtendedDaemonSet, replicaset string, nodes []string) Event {
	text := "Canary " + replicaset + " runs on " + some(nodes)
	if len(nodes) == 0 {
		text = "Canary " + replicaset + " has no node to run on"
	}
	return Event{d, corev1.EventTypeNormal, "CanaryStarted", text}
}

// CanaryPromoted: the canary has been healthy for as long as it had to.
func CanaryPromoted(d *edsv1.ExtendedDaemonSet, replicaset string) Event {
	return Event{d, corev1.EventTypeNormal, "CanaryPromoted", "Canary " + replicaset + " has passed"}
}

// CanaryValidated: somebody has said that the canary is good.
func CanaryValidated(d *edsv1.ExtendedDaemonSet, replicaset string) Event {
	return Event{d, corev1.EventTypeNormal, "CanaryValidated", "Canary " + replicaset + " was validated"}
}

// CanaryPaused: the canary waits until somebody acts. There may be no message.
func CanaryPaused(d *edsv1.ExtendedDaemonSet, replicaset, reason, message string) Event {
	return Event{d, corev1.EventTypeWarning, "CanaryPaused", "Canary " + replicaset + " is paused" + because(reason, message)}
}

// CanaryUnpaused: the canary goes on.
func CanaryUnpaused(d *edsv1.ExtendedDaemonSet, replicaset string) Event {
	return Event{d, corev1.EventTypeNormal, "CanaryUnpaused", "Canary " + replicaset + " goes on"}
}

// CanaryFailed: the canary's nodes go back to the active revision. There may be no message.
func CanaryFailed(d *edsv1.ExtendedDaemonSet, replicaset, reason, message string) Event {
	return Event{d, corev1.EventTypeWarning, "CanaryFailed", "Canary " + replicaset + " has failed" + because(reason, message)}
}

// CanaryReset: a revision whose canary has failed is tried again.
func CanaryReset(d *edsv1.ExtendedDaemonSet, replicaset string) Event {
	return Event{d, corev1.EventTypeNormal, "CanaryReset", "Canary " + replicaset + " is tried again"}
}

// PodCreateFailed: the API server refuses pods. The reason is that of built-in controllers.
func PodCreateFailed(d *edsv1.ExtendedDaemonSet, why string) Event {
	return Event{d, corev1.EventTypeWarning, "FailedCreate", "Pods can't be created: " + why}
}

// RolloutComplete: every node has the active revision.
func RolloutComplete(d *edsv1.ExtendedDaemonSet) Event {
	return Event{d, corev1.EventTypeNormal, "Complete", "All nodes have " + d.Status.ActiveReplicaSet}
}

// RolloutStalled: nothing goes on until somebody acts.
func RolloutStalled(d *edsv1.ExtendedDaemonSet, why string) Event {
	return Event{d, corev1.EventTypeWarning, "Stalled", "No more pods are replaced: " + why}
}

// SettingInvalid: the setting does not count.
func SettingInvalid(s *edsv1.ExtendedDaemonsetSetting, why string) Event {
	return Event{s, corev1.EventTypeWarning, "Invalid", "The setting does not count: " + why}
}

// PodTemplateCreated: the cluster autoscaler learns of these pods.
func PodTemplateCreated(d *edsv1.ExtendedDaemonSet) Event {
	return Event{d, corev1.EventTypeNormal, "Create PodTemplate", d.Namespace + "/" + d.Name}
}

// PodTemplateUpdated: the cluster autoscaler learns of a change.
func PodTemplateUpdated(d *edsv1.ExtendedDaemonSet) Event {
	return Event{d, corev1.EventTypeNormal, "Update PodTemplate", d.Namespace + "/" + d.Name}
}

// PodTemplateForeign: there is a PodTemplate of that name which is not the ExtendedDaemonSet's.
func PodTemplateForeign(d *edsv1.ExtendedDaemonSet) Event {
	return Event{
		d, corev1.EventTypeWarning, "PodTemplateForeign",
		"PodTemplate " + d.Namespace + "/" + d.Name + " is somebody else's and left alone: the cluster autoscaler is not told of these pods",
	}
}

// PodTemplateInvalid: the API server refuses the PodTemplate.
func PodTemplateInvalid(d *edsv1.ExtendedDaemonSet, err error) Event {
	return Event{d, corev1.EventTypeWarning, "PodTemplateInvalid", "The cluster autoscaler is not told of these pods: " + err.Error()}
}

// because is what follows what has happened: nothing when nothing is known.
func because(reason, message string) string {
	text := ""
	for _, part := range []string{reason, message} {
		if part != "" {
			text += ": " + part
		}
	}
	return text
}

// named is how many nodes an Event names.
const named = 10

// some of the nodes, by name, and how many more there are.
func some(nodes []string) string {
	if len(nodes) <= named {
		return strings.Join(nodes, ",")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(nodes[:named], ","), len(nodes)-named)
}
