// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// prefix of most keys here.
const prefix = "extendeddaemonset.datadoghq.com/"

// Annotations on an ExtendedDaemonSet, read by the controller.
const (
	// AnnotationCanaryPaused, when exactly "true", pauses the canary: it is not promoted, and no canary pod is created.
	AnnotationCanaryPaused = prefix + "canary-paused"
	// AnnotationCanaryPausedReason is why, copied to status.reason.
	AnnotationCanaryPausedReason = prefix + "canary-paused-reason"
	// AnnotationCanaryUnpaused, when exactly "true", overrides autoPause for the rest of this canary.
	AnnotationCanaryUnpaused = prefix + "canary-unpaused"
	// AnnotationCanaryValid promotes the canary at once when its value is the name of the canary's ExtendedDaemonSetReplicaSet.
	AnnotationCanaryValid = prefix + "canary-valid"
	// AnnotationRollingUpdatePaused, when exactly "true", keeps outdated pods; pods are still created where there is none.
	AnnotationRollingUpdatePaused = prefix + "rolling-update-paused"
	// AnnotationRolloutFrozen, when exactly "true", keeps outdated pods and creates none. It wins over the pause in status.state.
	AnnotationRolloutFrozen = prefix + "rollout-frozen"
	// AnnotationOldDaemonset names an apps/v1 DaemonSet of the same namespace whose pods are replaced as outdated ones.
	AnnotationOldDaemonset = prefix + "old-daemonset"
)

// Keys that the controller writes.
const (
	// LabelName is on ExtendedDaemonSetReplicaSets and pods: the ExtendedDaemonSet's name.
	LabelName = prefix + "name"
	// LabelReplicaSetName is on pods: the name of their ExtendedDaemonSetReplicaSet.
	LabelReplicaSetName = "extendeddaemonsetreplicaset.datadoghq.com/name"
	// LabelReplicaSetCanary is "true" on canary pods.
	LabelReplicaSetCanary = "extendeddaemonsetreplicaset.datadoghq.com/canary"
	// LabelSettingName and LabelSettingNamespace are on pods whose resources an ExtendedDaemonsetSetting has set.
	LabelSettingName      = "extendeddaemonsetsetting.datadoghq.com/name"
	LabelSettingNamespace = "extendeddaemonsetsetting.datadoghq.com/namespace"
	// AnnotationTemplateHash is on ExtendedDaemonSetReplicaSets, pods and PodTemplates: the hash of the template.
	AnnotationTemplateHash = prefix + "templatehash"
	// AnnotationNodeHash is on pods: the hash of what their node's annotations override.
	AnnotationNodeHash = prefix + "nodehash"
	// AnnotationOverrides is on pods: the hash of the resources that override those of the template, or "none". It is Moult's own. Pods
	// without it are from ExtendedDaemonSet, and are compared by its rules.
	AnnotationOverrides = "moult.dev/overrides-hash"
	// AnnotationDaemonsetPod is "true" on pods, and a label of PodTemplates, for the cluster autoscaler.
	AnnotationDaemonsetPod = "cluster-autoscaler.kubernetes.io/daemonset-pod"
)

// AnnotationResourcesPrefix begins annotations on nodes, PREFIX/NAMESPACE.NAME.CONTAINER: JSON resources of that container.
const AnnotationResourcesPrefix = "resources.extendeddaemonset.datadoghq.com/"

// True is the value of annotations and labels that are on.
const True = "true"
