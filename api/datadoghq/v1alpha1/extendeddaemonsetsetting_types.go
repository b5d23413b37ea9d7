// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=extendeddaemonsetsettings,singular=extendeddaemonsetsetting,scope=Namespaced
// +kubebuilder:printcolumn:name="status",type=string,JSONPath=`.status.status`
// +kubebuilder:printcolumn:name="node selector",type=string,JSONPath=`.spec.nodeSelector`
// +kubebuilder:printcolumn:name="error",type=string,JSONPath=`.status.error`
// +kubebuilder:printcolumn:name="age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="metadata.name must have at most 63 characters: the pods have it as a label"

// ExtendedDaemonsetSetting overrides the resources of an ExtendedDaemonSet's containers on some nodes.
type ExtendedDaemonsetSetting struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   ExtendedDaemonsetSettingSpec   `json:"spec,omitempty"`
	Status ExtendedDaemonsetSettingStatus `json:"status,omitempty"`
}

// ExtendedDaemonsetSettingList is a list of ExtendedDaemonsetSettings.
//
// +kubebuilder:object:root=true
type ExtendedDaemonsetSettingList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ExtendedDaemonsetSetting `json:"items"`
}

// ExtendedDaemonsetSettingSpec says which resources apply on which nodes.
type ExtendedDaemonsetSettingSpec struct {
	// Reference names the ExtendedDaemonSet, in the same namespace.
	// +kubebuilder:validation:XValidation:rule="size(self.name) > 0",message="must name an ExtendedDaemonSet of this namespace",fieldPath=".name"
	Reference *autoscalingv1.CrossVersionObjectReference `json:"reference"`
	// NodeSelector selects the nodes; empty selects all.
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn', 'Exists', 'DoesNotExist'])",message="operator must be In, NotIn, Exists or DoesNotExist"
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, (e.operator == 'In' || e.operator == 'NotIn') ? (has(e.values) && size(e.values) > 0) : (!has(e.values) || size(e.values) == 0))",message="values must be given for the operators In and NotIn, and left out for Exists and DoesNotExist"
	NodeSelector metav1.LabelSelector `json:"nodeSelector"`
	// Containers and their resources, which replace those of the template.
	// +optional
	// +listType=map
	// +listMapKey=name
	Containers []ExtendedDaemonsetSettingContainerSpec `json:"containers,omitempty"`
}

// ExtendedDaemonsetSettingContainerSpec is a container and its resources.
type ExtendedDaemonsetSettingContainerSpec struct {
	// Name of the container.
	Name string `json:"name"`
	// Resources replace the container's in the template.
	Resources corev1.ResourceRequirements `json:"resources"`
}

// SettingStatus says whether a setting applies.
type SettingStatus string

// Whether a setting applies.
const (
	SettingValid SettingStatus = "valid"
	SettingError SettingStatus = "error"
)

// ExtendedDaemonsetSettingStatus says whether a setting applies.
type ExtendedDaemonsetSettingStatus struct {
	// Status is valid or error. A setting with an error does not apply.
	Status SettingStatus `json:"status"`
	// Error says what is wrong.
	// +optional
	Error string `json:"error,omitempty"`
}
