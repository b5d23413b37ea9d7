// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"moult.dev/moult/api/v1alpha1"
)

// LeftByDucklett reports whether Ducklett has left something on the node.
func LeftByDucklett(n *corev1.Node) bool {
	for key := range n.Annotations {
		if strings.HasPrefix(key, v1alpha1.DucklettPrefix) {
			return true
		}
	}
	return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == v1alpha1.TaintDucklett })
}

// Adopt is the turn of a node that Ducklett was replacing, if it has added a machine for it already; nil where it has not, and the node is one
// like others. Which machine takes the place it has not written down: the turn looks for one that could.
func (w *World) Adopt(n *Node, turn string) *Turn {
	s, m := w.MachineOf(n)
	if m == nil || !s.Known || !n.Selected || n.OptedOut || w.Ending || w.DetectOnly || !w.Outdated(s, m, n) || !added(s, n.Annotations) {
		return nil
	}
	p := Spot{Node: n, Set: s, Machine: m}
	t := w.Begin(&p, v1alpha1.DucklettPrefix+turn, false)
	t.Phase = v1alpha1.MachineJoining
	return t
}

// added reports whether Ducklett has made the scale set larger for a node. It writes how many machines there are to be before it does, and that it has
// done it afterwards.
func added(s *Set, annotations map[string]string) bool {
	switch annotations[v1alpha1.AnnotationDucklettStatus] {
	case v1alpha1.DucklettUpgradeStarted, v1alpha1.DucklettUpgradeDrainReady, v1alpha1.DucklettUpgradeDrainStarted, v1alpha1.DucklettUpgradeDeleteReady:
		return true
	case v1alpha1.DucklettUpgradeReady:
		n, err := strconv.Atoi(annotations[v1alpha1.AnnotationDucklettCount])
		return err == nil && s.Capacity >= n
	}
	return false
}
