// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 holds the kinds of ExtendedDaemonSet (group datadoghq.com), with the fields, keys, states and conditions
// that it has, and what Moult adds to them.
//
// +kubebuilder:object:generate=true
// +kubebuilder:ac:generate=true
// +groupName=datadoghq.com
package v1alpha1
