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
// like others. Which machine takes the place it has not written down: the turn looks for one that could. Where another image is wanted since, it is the
// newest of the image that Ducklett wanted: it takes the place all the same, and is replaced in its own turn; or it is taken back, where the node is as it
// should be.
func (w *World) Adopt(n *Node, turn string, all []*Turn) *Turn {
	s, m := w.MachineOf(n)
	if m == nil || !s.Known || !n.Selected || n.OptedOut || w.Ending || w.DetectOnly || !added(s, n.Annotations) {
		return nil
	}
	p := NodeState{Node: n, Set: s, Machine: m}
	t := w.Begin(&p, v1alpha1.DucklettPrefix+turn, false)
	t.Phase = v1alpha1.MachineJoining
	if made := w.ducklettReplacement(s, n.Annotations[v1alpha1.AnnotationDucklettImage], all); made != nil {
		t.Replacement = made.ID
	}
	switch {
	case w.Outdated(s, m, n):
		return t
	case t.Replacement == "":
		return nil
	}
	w.discard(t, "the machine is what it is to be")
	return t
}

// ducklettReplacement is the newest machine that Ducklett may have added, for this image, and that is outdated by now; nil where there is none.
func (w *World) ducklettReplacement(s *Set, image string, all []*Turn) *Machine {
	if image = image[strings.LastIndex(image, "/")+1:]; image == "" {
		return nil
	}
	var newest *Machine
	for i := range s.Machines {
		m := &s.Machines[i]
		n := w.NodeOf(m)
		if n == nil || n.Status.NodeInfo.OSImage != image || !w.Outdated(s, m, n) || LeftByDucklett(n.Node) || m.State == Deleting || Taken(all, s.Name, m.ID) {
			continue
		}
		if newest == nil || m.newer(newest) {
			newest = m
		}
	}
	return newest
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
