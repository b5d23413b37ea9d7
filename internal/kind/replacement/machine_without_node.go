// SPDX-License-Identifier: Apache-2.0

package replacement

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/rollout"
)

// MachinesWithoutNode are the outdated machines that failed, that no turn has, and that are no Node's, as failed units: they use up concurrency, and the rollout
// does not end. Nothing shows who added them, so a person deletes them. A machine that a turn added is deleted by that turn. They are not looked for where the
// cloud replaces machines that fail, and where only a Node shows whether its machine is outdated.
func (w *World) MachinesWithoutNode(turns []*Turn) (states []NodeState) {
	for _, name := range slices.Sorted(maps.Keys(w.Sets)) {
		s := w.Sets[name]
		if !s.Known || s.Heals || w.MatchOSImage || w.DetectOnly || w.Ending || !w.isFor(name) {
			continue
		}
		for i := range s.Machines {
			m := &s.Machines[i]
			failedSince := m.Created.Add(w.Timeout)
			if m.State != Failed || m.UpToDate || w.NodeOf(m) != nil || IsTaken(turns, name, m.ID) || w.Now.Before(failedSince) {
				continue
			}
			states = append(states, NodeState{
				Node: &Node{Node: &corev1.Node{}, Selected: true}, Set: s, Machine: m, Counted: true,
				Unit: rollout.Unit{
					Node: v1alpha1.MachineUnit(name, m.ID), State: v1alpha1.UnitFailed, NoNode: true, Reason: v1alpha1.ReasonMachineUnknown, Since: failedSince,
					Message: fmt.Sprintf("machine %s of scale set %s failed and has no Node: repair it, or delete it in the cloud", m.ID, name),
				},
			})
		}
	}
	return states
}
