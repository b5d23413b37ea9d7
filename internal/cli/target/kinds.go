// SPDX-License-Identifier: Apache-2.0

// Package target is what a command line names: a rollout, a node or a budget. Its table of kinds is the one place to add
// another kind of rollout.
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
	// Singular and its Aliases are what may stand before the slash: singular/NAME.
	Singular string
	Aliases  []string
	// Short is the one of them that is shortest to read.
	Short string
	// Resource is what the API calls it.
	Resource schema.GroupVersionResource
	// Namespaced is true when its objects are in namespaces.
	Namespaced bool
	// Rollout is true for one that brings nodes to a revision.
	Rollout bool
	// Paused is the path of the field that pauses it; none can't be paused.
	Paused []string
	// Strategic is true when spec.strategy must be there, even if it holds nothing.
	Strategic bool
	// Article stands before Name in a sentence.
	Article string
}

// The kinds.
var (
	Plan = &Kind{
		Name: "Plan", Article: "a", Singular: "plan", Aliases: []string{"plans"}, Short: "plan", Namespaced: true, Rollout: true,
		Resource: upgradev1.GroupVersion.WithResource("plans"), Paused: []string{"spec", "strategy", "paused"},
	}
	DaemonSet = &Kind{
		Name: "ExtendedDaemonSet", Article: "an", Singular: "extendeddaemonset", Aliases: []string{"extendeddaemonsets", "eds"}, Short: "eds",
		Namespaced: true, Rollout: true, Strategic: true,
		Resource: edsv1.GroupVersion.WithResource("extendeddaemonsets"), Paused: []string{"spec", "strategy", "paused"},
	}
	NodeRollout = &Kind{
		Name: "NodeRollout", Article: "a", Singular: "noderollout", Aliases: []string{"noderollouts", "nr"}, Short: "nr", Rollout: true,
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
)

// Rollouts are the kinds of rollouts. A name without a kind means one of the first, and one of another kind only where there is none
// of the first.
var Rollouts = []*Kind{Plan, DaemonSet, NodeRollout}

// Arg is how a command line names a rollout: NAME, or kind/NAME where the kind is not the first, and its namespace if it is in one.
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
