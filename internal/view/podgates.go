// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/rollout"
)

// someNamed is how many are named of the pods that block a node, and of the nodes that are blocked.
const someNamed = 3

// PodGates reports whether a gate goes by the pods on a node, which no status lists, and whether by the labels of their namespaces.
func (c *Cluster) PodGates(node string) (pods, namespaces bool) {
	c.onNode(node, func(_ *rollout.Budget, gates []v1alpha1.PodsGate) {
		pods = true
		namespaces = namespaces || slices.ContainsFunc(gates, func(g v1alpha1.PodsGate) bool { return g.NamespaceSelector != nil })
	})
	return pods, namespaces
}

// PodsOn adds the pods on a node, and the labels of namespaces, so that gates that select such pods close.
func (c *Cluster) PodsOn(node string, pods []corev1.Pod, namespaces map[string]labels.Set) {
	all := make([]*corev1.Pod, len(pods))
	for i := range pods {
		all[i] = &pods[i]
	}
	c.onNode(node, func(b *rollout.Budget, gates []v1alpha1.PodsGate) {
		read, err := rollout.NewPodsGates(gates)
		if err != nil {
			return // The budget's status says so.
		}
		_, found := rollout.PodBlocks(read, all, func(name string) (labels.Set, bool) {
			set, known := namespaces[name]
			return set, known
		})
		b.NodeBlocks = maps.Clone(b.NodeBlocks)
		if b.NodeBlocks == nil {
			b.NodeBlocks = map[string]rollout.Block{}
		}
		maps.Copy(b.NodeBlocks, found)
	})
}

// someOf names the first of many, and says how many more there are.
func someOf(names []string) string {
	text := strings.Join(names[:min(len(names), someNamed)], ", ")
	if more := len(names) - someNamed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// onNode calls for the gates that pods on the node can close, of each budget that selects it.
func (c *Cluster) onNode(name string, do func(*rollout.Budget, []v1alpha1.PodsGate)) {
	n := c.fleet.Nodes[name]
	if n == nil {
		return
	}
	for i := range c.fleet.Budgets {
		b := &c.fleet.Budgets[i]
		at := slices.IndexFunc(c.budgets, func(from v1alpha1.NodeDisruptionBudget) bool { return from.Name == b.Name })
		if at < 0 || c.budgets[at].Spec.Gates == nil || !b.Selector.Matches(labels.Set(n.Labels)) {
			continue
		}
		gates := slices.DeleteFunc(slices.Clone(c.budgets[at].Spec.Gates.Pods), func(g v1alpha1.PodsGate) bool { return g.Scope == v1alpha1.PodsInCluster })
		if len(gates) > 0 {
			do(b, gates)
		}
	}
}
