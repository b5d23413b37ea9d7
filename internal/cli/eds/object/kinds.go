// SPDX-License-Identifier: Apache-2.0

// Package object reads and writes ExtendedDaemonSets and their ExtendedDaemonSetReplicaSets for `kubectl eds`.
package object

import (
	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/internal/cli/target"
)

// The kinds that `kubectl eds` is about.
var (
	DaemonSet = &target.Kind{
		Name: "ExtendedDaemonSet", Singular: "extendeddaemonset", Aliases: []string{"extendeddaemonsets", "eds"}, Short: "eds",
		Namespaced: true, Rollout: true,
		Resource: edsv1.GroupVersion.WithResource("extendeddaemonsets"), Paused: []string{"spec", "strategy", "paused"},
	}
	ReplicaSet = &target.Kind{
		Name: "ExtendedDaemonSetReplicaSet", Singular: "extendeddaemonsetreplicaset",
		Aliases: []string{"extendeddaemonsetreplicasets", "ers"}, Short: "ers", Namespaced: true,
		Resource: edsv1.GroupVersion.WithResource("extendeddaemonsetreplicasets"),
	}
)
