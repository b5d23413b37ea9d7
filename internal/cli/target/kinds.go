// SPDX-License-Identifier: Apache-2.0

// Package target is what a command line names: a rollout, a node or a budget. Another kind of rollout is added to its table.
package target

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
)

// Kind is one kind of object that commands act on.
type Kind struct {
	// Name is the kind, as in a manifest.
	Name string
	// Singular and Aliases are the words that may come before the slash: singular/NAME.
	Singular string
	Aliases  []string
	// Short is the shortest of these words.
	Short      string
	Resource   schema.GroupVersionResource
	Namespaced bool
	// Paused is the path of the field that pauses it; empty when it cannot be paused.
	Paused []string
	// StrategyRequired is true when spec.strategy must be there, even if it is empty.
	StrategyRequired bool
	// Article is "a" or "an".
	Article string
}

// The kinds.
var (
	Plan = &Kind{
		Name: "Plan", Article: "a", Singular: "plan", Aliases: []string{"plans"}, Short: "plan", Namespaced: true,
		Resource: upgradev1.GroupVersion.WithResource("plans"), Paused: []string{"spec", "strategy", "paused"},
	}
	DaemonSet = &Kind{
		Name: "ExtendedDaemonSet", Article: "an", Singular: "extendeddaemonset", Aliases: []string{"extendeddaemonsets", "eds"}, Short: "eds",
		Namespaced: true, StrategyRequired: true,
		Resource: edsv1.GroupVersion.WithResource("extendeddaemonsets"), Paused: []string{"spec", "strategy", "paused"},
	}
	NodeRollout = &Kind{
		Name: "NodeRollout", Article: "a", Singular: "noderollout", Aliases: []string{"noderollouts", "nr"}, Short: "nr",
		Resource: v1alpha1.GroupVersion.WithResource("noderollouts"), Paused: []string{"spec", "strategy", "paused"},
	}
	Budget = &Kind{
		Name: "NodeDisruptionBudget", Article: "a", Singular: "nodedisruptionbudget", Aliases: []string{"nodedisruptionbudgets", "ndb"}, Short: "ndb",
		Resource: v1alpha1.GroupVersion.WithResource("nodedisruptionbudgets"), Paused: []string{"spec", "paused"},
	}
	Node = &Kind{
		Name: "Node", Article: "a", Singular: "node", Aliases: []string{"nodes", "no"}, Short: "node",
		Resource: corev1.SchemeGroupVersion.WithResource("nodes"),
	}
	Pod = &Kind{
		Name: "Pod", Article: "a", Singular: "pod", Namespaced: true, Resource: corev1.SchemeGroupVersion.WithResource("pods"),
	}
	// ReplicaSet is a revision of an ExtendedDaemonSet.
	ReplicaSet = &Kind{
		Name: "ExtendedDaemonSetReplicaSet", Article: "an", Singular: "extendeddaemonsetreplicaset",
		Aliases: []string{"extendeddaemonsetreplicasets", "ers"}, Short: "ers", Namespaced: true,
		Resource: edsv1.GroupVersion.WithResource("extendeddaemonsetreplicasets"),
	}
	Setting = &Kind{
		Name: "ExtendedDaemonsetSetting", Article: "an", Singular: "extendeddaemonsetsetting", Namespaced: true,
		Resource: edsv1.GroupVersion.WithResource("extendeddaemonsetsettings"),
	}
)

// Rollouts are the kinds of rollouts. A name without a kind is that of a rollout of any kind.
var Rollouts = []*Kind{Plan, DaemonSet, NodeRollout}

// Arg names a rollout on a command line: NAME for a Plan, kind/NAME for others, and the namespace if there is one.
func Arg(kind, namespace, name string) string {
	for _, k := range Rollouts[1:] {
		if k.Name == kind {
			name = k.Short + "/" + name
		}
	}
	if namespace == "" {
		return name
	}
	return name + " -n " + namespace
}

// String is how kubectl names an object of the kind: "plan.upgrade.cattle.io/NAME".
func (k *Kind) String(name string) string {
	if k.Resource.Group == "" {
		return k.Singular + "/" + name
	}
	return k.Singular + "." + k.Resource.Group + "/" + name
}
