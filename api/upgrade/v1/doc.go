// SPDX-License-Identifier: Apache-2.0

// Package v1 holds the Plan (group upgrade.cattle.io), field for field that of Rancher's system-upgrade-controller, with
// additions that its users can ignore.
//
// +kubebuilder:object:generate=true
// +kubebuilder:ac:generate=true
// +groupName=upgrade.cattle.io
package v1
