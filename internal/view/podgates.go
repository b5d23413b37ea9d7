// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/rollout"
)

// someNamed is how many are named of the pods that block a node, and of the nodes that are blocked.
const someNamed = 3

// PodGates reports whether a gate goes by the pods on a node, which no status lists, and whether by the labels of their namespaces.
func (c *Cluster) PodGates(node string) (pods, namespaces bool) {
	c.onNode(node, func(_ *rollout.Budget, gate *v1alpha1.PodsGate) {
		pods, namespaces = true, namespaces || gate.NamespaceSelector != nil
	})
	return pods, namespaces
}

// PodsOn tells which pods are on a node, and the labels of namespaces, so that gates that go by them close.
func (c *Cluster) PodsOn(node string, pods []corev1.Pod, namespaces map[string]labels.Set) {
	blocking := map[*rollout.Budget][]string{}
	c.onNode(node, func(b *rollout.Budget, gate *v1alpha1.PodsGate) {
		selector, err := metav1.LabelSelectorAsSelector(&gate.Selector)
		if err != nil {
			return // The budget's status says that it can't be understood.
		}
		within := labels.Everything()
		if gate.NamespaceSelector != nil {
			if within, err = metav1.LabelSelectorAsSelector(gate.NamespaceSelector); err != nil {
				return
			}
		}
		for i := range pods {
			p := &pods[i]
			// A namespace that is not known might be selected.
			set, known := namespaces[p.Namespace]
			ended := p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
			if !ended && selector.Matches(labels.Set(p.Labels)) && (gate.NamespaceSelector == nil || !known || within.Matches(set)) {
				blocking[b] = append(blocking[b], p.Namespace+"/"+p.Name)
			}
		}
	})
	for b, names := range blocking {
		if b.NodeBlocks == nil {
			b.NodeBlocks = map[string]rollout.Block{}
		}
		b.NodeBlocks[node] = rollout.Block{Gate: v1alpha1.ReasonPodsBlock, Message: onIt(names)}
	}
}

// onIt says which pods are on a node, as the operator does.
func onIt(names []string) string {
	slices.Sort(names)
	names = slices.Compact(names)
	if len(names) == 1 {
		return "pod " + names[0] + " is on it"
	}
	return "pods " + someOf(names) + " are on it"
}

// someOf names the first of many, and says how many more there are.
func someOf(names []string) string {
	text := strings.Join(names[:min(len(names), someNamed)], ", ")
	if more := len(names) - someNamed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// onNode calls for every gate that goes by the pods on a node, of the budgets that select it.
func (c *Cluster) onNode(name string, do func(*rollout.Budget, *v1alpha1.PodsGate)) {
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
		gates := c.budgets[at].Spec.Gates.Pods
		for j := range gates {
			if gates[j].Scope != v1alpha1.PodsInCluster {
				do(b, &gates[j])
			}
		}
	}
}
