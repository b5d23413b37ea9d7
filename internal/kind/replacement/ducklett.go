// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/cloud"
)

// LeftByDucklett reports whether the node has annotations or the taint of Ducklett.
func LeftByDucklett(n *corev1.Node) bool {
	for key := range n.Annotations {
		if strings.HasPrefix(key, v1alpha1.DucklettPrefix) {
			return true
		}
	}
	return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == v1alpha1.TaintDucklett })
}

// Adopt is the turn of a node for which Ducklett has added a machine. It returns nil if Ducklett has not, or if the old machine is gone. Ducklett
// does not record which machine it added: the newest up-to-date machine is the replacement. If there is none, the image of the set was changed after
// that, and the newest machine is discarded.
func (w *World) Adopt(n *Node, turn string, all []*Turn) *Turn {
	s, m := w.MachineOf(n)
	if m == nil || !s.Known || !n.Selected || n.OptedOut || w.Ending || w.DetectOnly || !hasDucklettAdded(s, n.Annotations) {
		return nil
	}
	var newest *cloud.Machine
	isOutdated := false
	for i := range s.Machines {
		o := &s.Machines[i]
		node := w.NodeOf(o)
		if o.State == cloud.Deleting || IsTaken(all, s.Name, o.ID) || o.ID == m.ID || node != nil && LeftByDucklett(node.Node) {
			continue
		}
		if outdated := w.Outdated(s, o, node); newest == nil || isOutdated && !outdated || isOutdated == outdated && byAge(o, newest) > 0 {
			newest, isOutdated = o, outdated
		}
	}
	if newest == nil {
		return nil
	}
	if wanted, err := strconv.Atoi(n.Annotations[v1alpha1.AnnotationDucklettCount]); isOutdated && err == nil && s.Capacity < wanted {
		return nil // The machine that Ducklett added is gone.
	}
	t := w.Begin(&NodeState{Node: n, Set: s, Machine: m}, v1alpha1.DucklettPrefix+turn, false)
	t.Phase, t.Replacement = v1alpha1.MachineJoining, newest.ID
	if isOutdated {
		w.discard(t, "the image of the set was changed after Ducklett added the machine")
	}
	return t
}

// hasDucklettAdded reports whether Ducklett has made the scale set larger for a node. Ducklett writes the wanted number of machines before that, and
// a new status afterwards.
func hasDucklettAdded(s *Set, annotations map[string]string) bool {
	switch annotations[v1alpha1.AnnotationDucklettStatus] {
	case v1alpha1.DucklettUpgradeStarted, v1alpha1.DucklettUpgradeDrainReady, v1alpha1.DucklettUpgradeDrainStarted, v1alpha1.DucklettUpgradeDeleteReady:
		return true
	case v1alpha1.DucklettUpgradeReady:
		n, err := strconv.Atoi(annotations[v1alpha1.AnnotationDucklettCount])
		return err == nil && n > 0 && s.Capacity >= n
	}
	return false
}
