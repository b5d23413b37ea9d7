// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of the kinds here.
var GroupVersion = schema.GroupVersion{Group: GroupName, Version: "v1alpha1"}

// SchemeGroupVersion is GroupVersion by the name that the generated apply configurations expect.
var SchemeGroupVersion = GroupVersion

// AddToScheme registers the kinds here.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &NodeDisruptionBudget{}, &NodeDisruptionBudgetList{}, &NodeRollout{}, &NodeRolloutList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
