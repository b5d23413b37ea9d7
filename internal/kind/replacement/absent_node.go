// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"encoding/json"
	"maps"

	"moult.dev/moult/api/v1alpha1"
)

// maxEvicted bounds how many controllers of evicted pods a turn remembers.
const maxEvicted = 100

// noteAbsent remembers the Node of a turn that deletes it before another one has come, for as long as neither is there: budgets count Nodes, and would
// take what is missing for no loss. It is remembered before the Node goes, as nothing is known of it then.
func (w *World) noteAbsent(t *Turn) {
	n := w.oldNode(t)
	going := t.Phase == v1alpha1.MachineLeaving || t.Phase == v1alpha1.MachineDeleting || t.Machine == ""
	switch {
	case t.Over || !t.DeletesFirst || n != nil && !going:
		t.Absent = nil
	case n != nil:
		// Strings always unmarshal as they were marshalled; what cannot be read counts as nothing, as it is told of elsewhere.
		var evicted []string
		_ = json.Unmarshal([]byte(n.Annotations[v1alpha1.AnnotationEvicted]), &evicted)
		t.Absent = &v1alpha1.AbsentNode{Name: n.Name, Labels: maps.Clone(n.Labels), Evicted: evicted[:min(len(evicted), maxEvicted)]}
	case t.Absent != nil && w.ReplacementNode(t) != nil && len(t.Absent.Evicted) == 0:
		t.Absent = nil
	}
}
