// SPDX-License-Identifier: Apache-2.0

package events

import (
	"testing"

	"moult.dev/moult/api/v1alpha1"
)

func TestReplacementEvents(t *testing.T) {
	r := &v1alpha1.NodeRollout{}
	turn := &v1alpha1.MachineTurn{Node: "a", ScaleSet: "pool", Machine: "1", Replacement: "2", ReplacementNode: "b"}
	for want, e := range map[string]Event{
		"Normal Started Replacing the machines of Nodes a,b":                                                              MachinesStarted(r).Naming(r, []string{"a", "b"}),
		"Normal Adopted Node a is taken over from Ducklett in the middle of its replacement":                              MachineAdopted(r, "a"),
		"Normal MachineAdded Machine 2 of scale set pool takes the place of a":                                            MachineAdded(r, turn),
		"Normal Draining Node a is drained: its replacement, Node b, is ready":                                            MachineDraining(r, turn),
		"Normal MachineDeleted The machine of Node a in scale set pool is deleted":                                        MachineDeleted(r, turn, turn),
		"Normal MachineDeleted Machine 3, which has no Node, in scale set pool is deleted":                                MachineDeleted(r, turn, &v1alpha1.MachineTurn{Machine: "3"}),
		"Normal Updated Node b of scale set pool has taken its place, and is well":                                        MachineReplaced(r, turn),
		"Normal MachineDiscarded Machine 2 of scale set pool is deleted again: no":                                        MachineDiscarded(r, turn, "no"),
		"Warning CloudQuota Scale set pool: no cores":                                                                     ScaleSetTrouble(r, &v1alpha1.ScaleSetStatus{Name: "pool", Reason: v1alpha1.ReasonCloudQuota, Message: "no cores"}),
		"Normal ScaleSetWell Scale set pool can be changed again":                                                         ScaleSetWell(r, "pool"),
		"Warning RolledBack Scale set pool has image one again: more turns have failed with two than the strategy allows": RolledBack(r, "pool", "two", "one"),
	} {
		if got := e.Type + " " + e.Reason + " " + e.Message; got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
