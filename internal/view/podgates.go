// SPDX-License-Identifier: Apache-2.0

package view

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/rollout"
)

// PodGates reports whether a gate depends on pods on the node, and whether it depends on the labels of their namespaces.
// An empty name means any node. No status lists these gates.
func (c *Cluster) PodGates(node string) (pods, namespaces bool) {
	for i := range c.fleet.Budgets {
		if node != "" && !c.selects(&c.fleet.Budgets[i], node) {
			continue
		}
		for _, g := range nodeGates(&c.budgets[i]) {
			pods, namespaces = true, namespaces || g.NamespaceSelector != nil
		}
	}
	return pods, namespaces
}

// PodsOnNodes adds pods and the labels of namespaces, so that gates for such pods close.
func (c *Cluster) PodsOnNodes(pods []corev1.Pod, namespaces map[string]labels.Set) {
	all := make([]*corev1.Pod, len(pods))
	for i := range pods {
		all[i] = &pods[i]
	}
	labelsOf := func(namespace string) (labels.Set, bool) {
		set, ok := namespaces[namespace]
		return set, ok
	}
	for i := range c.fleet.Budgets {
		b := &c.fleet.Budgets[i]
		gates, err := rollout.NewPodsGates(nodeGates(&c.budgets[i]))
		if err != nil {
			continue // The budget's status shows the error.
		}
		_, b.NodeBlocks = rollout.PodBlocks(gates, all, labelsOf)
		maps.DeleteFunc(b.NodeBlocks, func(node string, _ rollout.Block) bool { return !c.selects(b, node) })
	}
}

// nodeGates returns the gates of a budget that a pod closes for its own node only.
func nodeGates(b *v1alpha1.NodeDisruptionBudget) []v1alpha1.PodsGate {
	if b.Spec.Gates == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(b.Spec.Gates.Pods), func(g v1alpha1.PodsGate) bool { return g.Scope == v1alpha1.PodsInCluster })
}

// selects reports whether a budget selects a node.
func (c *Cluster) selects(b *rollout.Budget, node string) bool {
	n := c.fleet.Nodes[node]
	return n != nil && b.Selector.Matches(labels.Set(n.Labels))
}
