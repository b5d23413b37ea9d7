// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=extendeddaemonsetreplicasets,singular=extendeddaemonsetreplicaset,shortName=ers,scope=Namespaced
// +kubebuilder:printcolumn:name="status",type=string,JSONPath=`.status.status`
// +kubebuilder:printcolumn:name="desired",type=integer,JSONPath=`.status.desired`
// +kubebuilder:printcolumn:name="current",type=integer,JSONPath=`.status.current`
// +kubebuilder:printcolumn:name="ready",type=integer,JSONPath=`.status.ready`
// +kubebuilder:printcolumn:name="available",type=integer,JSONPath=`.status.available`
// +kubebuilder:printcolumn:name="ignored unresponsive nodes",type=integer,JSONPath=`.status.ignoredUnresponsiveNodes`
// +kubebuilder:printcolumn:name="node selector",type=string,JSONPath=`.spec.selector`
// +kubebuilder:printcolumn:name="age",type=date,JSONPath=`.metadata.creationTimestamp`

// ExtendedDaemonSetReplicaSet is one revision of an ExtendedDaemonSet's template. Only the controller creates it.
type ExtendedDaemonSetReplicaSet struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   ExtendedDaemonSetReplicaSetSpec   `json:"spec,omitempty"`
	Status ExtendedDaemonSetReplicaSetStatus `json:"status,omitempty"`
}

// ExtendedDaemonSetReplicaSetList is a list of ExtendedDaemonSetReplicaSets.
//
// +kubebuilder:object:root=true
type ExtendedDaemonSetReplicaSetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ExtendedDaemonSetReplicaSet `json:"items"`
}

// ExtendedDaemonSetReplicaSetSpec is a revision.
type ExtendedDaemonSetReplicaSetSpec struct {
	// Selector selects nodes: a copy of the ExtendedDaemonSet's.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
	// Template of the pods.
	Template corev1.PodTemplateSpec `json:"template"`
	// TemplateGeneration is the hash of the template.
	// +optional
	TemplateGeneration string `json:"templateGeneration,omitempty"`
}

// ExtendedDaemonSetReplicaSetStatus is the state of a revision's pods.
type ExtendedDaemonSetReplicaSetStatus struct {
	// Status is active, canary, canary-failed or unknown.
	Status ReplicaSetStatus `json:"status"`
	// Desired is how many nodes should have a pod of this revision.
	Desired int32 `json:"desired"`
	// Current is how many pods of this revision there are.
	Current int32 `json:"current"`
	// Ready is how many of them are ready.
	Ready int32 `json:"ready"`
	// Available is how many of them have been ready for minReadySeconds.
	Available int32 `json:"available"`
	// IgnoredUnresponsiveNodes is on how many nodes a pod is not scheduled, or does not terminate in time. maxPodSchedulerFailure says how many of
	// them are not counted as unavailable.
	IgnoredUnresponsiveNodes int32 `json:"ignoredUnresponsiveNodes"`
	// Conditions by type.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []Condition `json:"conditions,omitempty"`
}
