// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 holds the API of Moult itself (group moult.dev) and the words that every kind of rollout shares:
// unit states, reasons, counts, and the claim that a rollout writes on a Node before it disrupts it.
//
// Defaults are in the schema, with two exceptions. A default in hostUpdate or replacementReady would change the identity of attempts, and so
// retry failed nodes at an upgrade. A default in Strategy would change stored Plans and ExtendedDaemonSets.
//
// +kubebuilder:object:generate=true
// +kubebuilder:ac:generate=true
// +groupName=moult.dev
package v1alpha1
