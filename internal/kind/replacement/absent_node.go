// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"encoding/json"
	"maps"

	"moult.dev/moult/api/v1alpha1"
)

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
