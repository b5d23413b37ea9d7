// SPDX-License-Identifier: Apache-2.0

// Package object reads and writes ExtendedDaemonSets and their ExtendedDaemonSetReplicaSets for `kubectl eds`.
package object

import (
	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/internal/cli/target"
)

// ReplicaSet is the kind of a revision; that of what it is a revision of is target.DaemonSet.
var ReplicaSet = &target.Kind{
	Name: "ExtendedDaemonSetReplicaSet", Article: "an", Singular: "extendeddaemonsetreplicaset",
	Aliases: []string{"extendeddaemonsetreplicasets", "ers"}, Short: "ers", Namespaced: true,
	Resource: edsv1.GroupVersion.WithResource("extendeddaemonsetreplicasets"),
}
