// SPDX-License-Identifier: Apache-2.0

package events

import edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"

type daemonset = *edsv1.ExtendedDaemonSet

// The Events of an ExtendedDaemonSet. Those whose reasons begin with Create or Update have the messages of ExtendedDaemonSet.
var (
	// CanaryPromoted: the canary was healthy for the required time.
	CanaryPromoted = saying[daemonset](normal, "CanaryPromoted", "Canary %s has passed")
	// CanaryValidated: a person has validated the canary.
	CanaryValidated = saying[daemonset](normal, "CanaryValidated", "Canary %s was validated")
	// CanaryUnpaused: the canary continues.
	CanaryUnpaused = saying[daemonset](normal, "CanaryUnpaused", "Canary %s goes on")
	// CanaryReset: a revision whose canary has failed is tried again.
	CanaryReset = saying[daemonset](normal, "CanaryReset", "Canary %s is tried again")
	// ReplicaSetActivated: another revision is now active for all nodes.
	ReplicaSetActivated = saying[daemonset](normal, "Activated", "All nodes are brought to %s")
	// PodCreateFailed: the API server refuses pods. Built-in controllers use the same reason.
	PodCreateFailed = saying[daemonset](warning, "FailedCreate", "Pods can't be created: %s")
	// RolloutStalled: nothing continues until a person acts.
	RolloutStalled = saying[daemonset](warning, "Stalled", "No more pods are replaced: %s")
	// RolloutComplete: every node has the active revision.
	RolloutComplete = computed(normal, "Complete", func(d daemonset) string { return "All nodes have " + d.Status.ActiveReplicaSet })
	// ReplicaSetCreated: there is a new revision.
	ReplicaSetCreated = about(normal, "Create ExtendedDaemonSetReplicaSet", inNamespace)
	// ReplicaSetDeleted: an old revision is deleted.
	ReplicaSetDeleted = about(normal, "Delete ExtendedDaemonSetReplicaSet", inNamespace)
	// PodTemplateCreated: the cluster autoscaler now sees these pods.
	PodTemplateCreated = computed(normal, "Create PodTemplate", fullName)
	// PodTemplateUpdated: the cluster autoscaler now sees the change.
	PodTemplateUpdated = computed(normal, "Update PodTemplate", fullName)
	// PodTemplateForeign: a PodTemplate of that name has another owner.
	PodTemplateForeign = computed(warning, "PodTemplateForeign", func(d daemonset) string {
		return "PodTemplate " + fullName(d) + " belongs to another owner and is not changed: the cluster autoscaler does not see these pods"
	})
	// PodTemplateInvalid: the API server refuses the PodTemplate.
	PodTemplateInvalid = about(warning, "PodTemplateInvalid", func(_ daemonset, err error) string {
		return "The cluster autoscaler does not see these pods: " + err.Error()
	})
	// SettingInvalid: the setting has no effect.
	SettingInvalid = saying[*edsv1.ExtendedDaemonsetSetting](warning, "Invalid", "The setting has no effect: %s")
)

func fullName(d daemonset) string { return d.Namespace + "/" + d.Name }

func inNamespace(d daemonset, name string) string { return d.Namespace + "/" + name }

// CanaryStarted: a revision is tried on these nodes.
func CanaryStarted(d *edsv1.ExtendedDaemonSet, replicaset string, nodes []string) Event {
	if len(nodes) == 0 {
		return Event{d, normal, "CanaryStarted", "Canary " + replicaset + " has no node to run on"}
	}
	return Event{d, normal, "CanaryStarted", "Canary " + replicaset + " runs on " + some(nodes)}
}

// CanaryPaused: the canary waits until a person acts. The message may be empty.
func CanaryPaused(d *edsv1.ExtendedDaemonSet, replicaset, reason, message string) Event {
	return Event{d, warning, "CanaryPaused", "Canary " + replicaset + " is paused" + because(reason, message)}
}

// CanaryFailed: the canary's nodes return to the active revision. The message may be empty.
func CanaryFailed(d *edsv1.ExtendedDaemonSet, replicaset, reason, message string) Event {
	return Event{d, warning, "CanaryFailed", "Canary " + replicaset + " has failed" + because(reason, message)}
}

// because returns the reason and the message, each after a colon. Empty ones are omitted.
func because(reason, message string) (text string) {
	for _, part := range []string{reason, message} {
		if part != "" {
			text += ": " + part
		}
	}
	return text
}
