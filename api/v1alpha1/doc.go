// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 holds the API of Moult itself (group moult.dev) and the words that every kind of rollout shares:
// unit states, reasons, counts, and the claim that a rollout writes on a Node before it disrupts it.
//
// +kubebuilder:object:generate=true
// +kubebuilder:ac:generate=true
// +groupName=moult.dev
package v1alpha1
