// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"encoding/json"
	"maps"

	"moult.dev/moult/api/v1alpha1"
)

// maxEvicted bounds how many controllers of evicted pods a turn notes.
const maxEvicted = 100

// noteAbsent notes the Node of a turn that deletes it before its replacement has come, until that is there: budgets count Nodes, and would not count one that is
// missing. It is noted before the Node goes.
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
