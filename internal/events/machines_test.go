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
		"Normal MachineAdded Added to scale set pool: a,b":                                                                MachinesAdded(r, "pool").Naming(r, []string{"a", "b"}),
		"Normal Draining Drains begin on Nodes a,b":                                                                       MachinesDraining(r).Naming(r, []string{"a", "b"}),
		"Normal MachineDeleted Deleted from scale set pool: a,b":                                                          MachinesDeleted(r, "pool").Naming(r, []string{"b", "a"}),
		"Normal Updated New in scale set pool, and well: Nodes b,c":                                                       MachinesReplaced(r, "pool").Naming(r, []string{"b", "c"}),
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
