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

// someNamed bounds how many blocked nodes a message names.
const someNamed = 3

// PodGates reports whether a gate depends on pods on the node, and whether it depends on the labels of their namespaces.
// An empty name means any node. No status lists these gates.
func (c *Cluster) PodGates(node string) (pods, namespaces bool) {
	c.eachPodsGate(node, func(_ string, _ *rollout.Budget, gates []v1alpha1.PodsGate) {
		pods = true
		namespaces = namespaces || slices.ContainsFunc(gates, func(g v1alpha1.PodsGate) bool { return g.NamespaceSelector != nil })
	})
	return pods, namespaces
}

// PodsOn adds the pods on the node and the labels of namespaces, so that gates for such pods close. An empty name means all nodes.
func (c *Cluster) PodsOn(node string, pods []corev1.Pod, namespaces map[string]labels.Set) {
	on := map[string][]*corev1.Pod{}
	for i := range pods {
		on[pods[i].Spec.NodeName] = append(on[pods[i].Spec.NodeName], &pods[i])
	}
	c.eachPodsGate(node, func(name string, b *rollout.Budget, gates []v1alpha1.PodsGate) {
		read, err := rollout.NewPodsGates(gates)
		if err != nil {
			return // The budget's status shows the error.
		}
		_, found := rollout.PodBlocks(read, on[name], func(name string) (labels.Set, bool) {
			set, known := namespaces[name]
			return set, known
		})
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

// eachPodsGate calls do for each budget that selects the node, with the gates that pods there can close. An empty name means every node.
func (c *Cluster) eachPodsGate(node string, do func(string, *rollout.Budget, []v1alpha1.PodsGate)) {
	for i := range c.budgets {
		from := &c.budgets[i]
		at := slices.IndexFunc(c.fleet.Budgets, func(b rollout.Budget) bool { return b.Name == from.Name })
		if from.Spec.Gates == nil || at < 0 {
			continue
		}
		gates := slices.DeleteFunc(slices.Clone(from.Spec.Gates.Pods), func(g v1alpha1.PodsGate) bool { return g.Scope == v1alpha1.PodsInCluster })
		for name, n := range c.fleet.Nodes {
			if len(gates) > 0 && (node == "" || node == name) && c.fleet.Budgets[at].Selector.Matches(labels.Set(n.Labels)) {
				do(name, &c.fleet.Budgets[at], gates)
			}
		}
	}
}
