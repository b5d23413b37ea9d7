// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 holds the kinds of ExtendedDaemonSet (group datadoghq.com), with its fields, keys, states and
// conditions, and Moult's additions.
//
// +kubebuilder:object:generate=true
// +kubebuilder:ac:generate=true
// +groupName=datadoghq.com
package v1alpha1
