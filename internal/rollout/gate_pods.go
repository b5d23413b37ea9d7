// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"moult.dev/moult/api/v1alpha1"
)

// PodsGate is a gate that is closed while there are pods that it selects.
type PodsGate struct {
	// Pods and Namespaces select the pods by their labels and by those of their namespace; nil selects all.
	Pods, Namespaces labels.Selector
	// Cluster is true when a pod closes the gate for all nodes, and not only for its own.
	Cluster bool
}

// NewPodsGates reads the pods gates of a budget. The error names the field.
func NewPodsGates(from []v1alpha1.PodsGate) ([]PodsGate, error) {
	gates := make([]PodsGate, len(from))
	for i := range from {
		g := &gates[i]
		g.Cluster = from[i].Scope == v1alpha1.PodsInCluster
		var err error
		if g.Pods, err = NewSelector(&from[i].Selector); err != nil {
			return nil, fmt.Errorf("pods[%d].selector: %w", i, err)
		}
		if g.Namespaces, err = NewSelector(from[i].NamespaceSelector); err != nil {
			return nil, fmt.Errorf("pods[%d].namespaceSelector: %w", i, err)
		}
	}
	return gates, nil
}

// NewSelector reads a selector. One that selects everything is nil.
func NewSelector(from *metav1.LabelSelector) (labels.Selector, error) {
	if from == nil {
		return nil, nil
	}
	s, err := metav1.LabelSelectorAsSelector(from)
	if err != nil || s.Empty() {
		return nil, err
	}
	return s, nil
}

// NamespaceLabels returns the labels of a namespace, and whether it is known.
type NamespaceLabels func(name string) (labels.Set, bool)

// Selects reports whether the gate selects a pod. An unknown namespace counts as selected.
func (g *PodsGate) Selects(p *corev1.Pod, namespaces NamespaceLabels) bool {
	if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed || g.Pods != nil && !g.Pods.Matches(labels.Set(p.Labels)) {
		return false
	}
	return SelectsNamespace(g.Namespaces, p.Namespace, namespaces)
}

// SelectsNamespace reports whether a selector, which may be nil, selects a namespace. An unknown namespace counts as
// selected.
func SelectsNamespace(by labels.Selector, name string, namespaces NamespaceLabels) bool {
	if by == nil {
		return true
	}
	set, known := namespaces(name)
	return !known || by.Matches(set)
}

// PodBlocks returns which gates these pods close: for all nodes, and for single nodes by name.
func PodBlocks(gates []PodsGate, pods []*corev1.Pod, namespaces NamespaceLabels) (all []Block, byNode map[string]Block) {
	on := map[string][]string{}
	for i := range gates {
		var names []string
		for _, p := range pods {
			if !gates[i].Selects(p, namespaces) {
				continue
			}
			if name := p.Namespace + "/" + p.Name; gates[i].Cluster {
				names = append(names, name)
			} else if p.Spec.NodeName != "" {
				on[p.Spec.NodeName] = append(on[p.Spec.NodeName], name)
			}
		}
		if len(names) > 0 {
			all = append(all, Block{v1alpha1.ReasonPodsBlock, podsSentence(names, "there")})
		}
	}
	for node, names := range on {
		if byNode == nil {
			byNode = make(map[string]Block, len(on))
		}
		byNode[node] = Block{v1alpha1.ReasonPodsBlock, podsSentence(names, "on it")}
	}
	return all, byNode
}

// podsSentence returns "pod a/b is there", or "pods a/b, a/c, a/d and 3 more are there".
func podsSentence(names []string, where string) string {
	slices.Sort(names)
	names = slices.Compact(names)
	if len(names) == 1 {
		return "pod " + names[0] + " is " + where
	}
	return "pods " + list(names, len(names)) + " are " + where
}
