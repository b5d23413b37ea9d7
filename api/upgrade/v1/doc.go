// SPDX-License-Identifier: Apache-2.0

// Package v1 holds the Plan (group upgrade.cattle.io) with the fields of Rancher's system-upgrade-controller and optional
// additions.
//
// +kubebuilder:object:generate=true
// +kubebuilder:ac:generate=true
// +groupName=upgrade.cattle.io
package v1
