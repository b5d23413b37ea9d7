// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"encoding/json"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/kind/nodeturn"
)

// AbsentNodes are the absent Nodes of turns, claimed by their rollout.
func AbsentNodes(holder string, uid types.UID, turns []v1alpha1.MachineTurn) (all []*corev1.Node) {
	for _, t := range turns {
		if t.Absent == nil {
			continue
		}
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: t.Absent.Name, Labels: t.Absent.Labels, Annotations: map[string]string{}}}
		n.ResourceVersion = nodeturn.Digest(t.Turn, t.Absent) // Different content needs a different version.
		n.Spec.Unschedulable = true
		// Formatting never fails here: the values were read from JSON.
		n.Annotations[v1alpha1.AnnotationClaims], _ = v1alpha1.FormatClaims([]v1alpha1.Claim{{Rollout: holder, UID: uid, Revision: t.Revision, Turn: t.Turn, Since: t.Since}})
		if len(t.Absent.Evicted) > 0 {
			evicted, _ := json.Marshal(t.Absent.Evicted) // Strings always marshal.
			n.Annotations[v1alpha1.AnnotationEvicted] = string(evicted)
		}
		all = append(all, n)
	}
	return all
}

// maxEvicted bounds how many controllers of evicted pods a turn records.
const maxEvicted = 100

// noteAbsent records the old Node of a turn that deletes first, until the replacement's Node exists: budgets count Nodes, and would not count a
// deleted one. It is recorded before the Node is deleted.
func (w *World) noteAbsent(t *Turn) {
	n := w.oldNode(t)
	going := t.Phase == v1alpha1.MachineLeaving || t.Phase == v1alpha1.MachineDeleting || t.Machine == ""
	switch {
	case t.Over || !t.DeletesFirst || n != nil && !going:
		t.Absent = nil
	case n != nil:
		// An unreadable record counts as empty: budgets report it.
		var evicted []string
		_ = json.Unmarshal([]byte(n.Annotations[v1alpha1.AnnotationEvicted]), &evicted)
		t.Absent = &v1alpha1.AbsentNode{Name: n.Name, Labels: maps.Clone(n.Labels), Evicted: evicted[:min(len(evicted), maxEvicted)]}
	case t.Absent != nil && w.ReplacementNode(t) != nil && len(t.Absent.Evicted) == 0:
		t.Absent = nil
	}
}
