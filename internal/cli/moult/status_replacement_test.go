// SPDX-License-Identifier: Apache-2.0

package moult

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/view"
)

// machineRollouts are NodeRollouts with replacement: one under way, one that the cloud stops, one that was rolled back, and one that is done.
func machineRollouts() []view.Rollout {
	const image = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/images/flatcar-stable-1.31.4-v2-bbbb"
	turn := func(node, phase, message string) view.Node {
		return view.Node{Node: node, State: v1alpha1.UnitUpdating, Phase: v1alpha1.Phase(phase), Since: ago(40 * time.Second), Message: message}
	}
	many := []v1alpha1.ScaleSetStatus{
		{
			Name: "prod-agents", Image: image, Capacity: 11, Machines: 11, Outdated: 4,
			Operations: []v1alpha1.CloudOperation{{Kind: v1alpha1.CloudOperationAdd, Count: 2, Machines: []string{"12"}}, {Kind: v1alpha1.CloudOperationDelete, Machines: []string{"3", "4"}}},
		},
		{Name: "prod-storage", Image: image, Machines: 3, Outdated: 3, Reason: v1alpha1.ReasonCloudQuota, Message: "QuotaExceeded: no more cores in westeurope", Since: ago(12 * time.Minute)},
	}
	for i := range 7 {
		many = append(many, v1alpha1.ScaleSetStatus{Name: fmt.Sprintf("other-%d", i), Machines: 1})
	}
	return []view.Rollout{
		{
			Kind: view.KindNodeRollout, Name: "agents", Version: "flatcar-stable-1.31.4-v2-bbbb", State: view.Progressing, Since: ago(12 * time.Minute),
			Counts: v1alpha1.UnitCounts{Total: 13, Updated: 6, Updating: 3, Waiting: 4}, ScaleSets: many,
			Nodes: []view.Node{
				turn("agents-3", "Draining", "replaced by agents-12; 2 pods left"),
				turn("agents-5", "Joining", "replaced by machine 13; its node is not ready: container runtime network not ready"),
				turn("agents-7", "Adding", ""),
				{Node: "storage-1", State: v1alpha1.UnitOutdated, Reason: v1alpha1.ReasonCloudQuota, Message: "QuotaExceeded: no more cores in westeurope"},
			},
		},
		{
			Kind: view.KindNodeRollout, Name: "rolled-back", Version: "image-1", State: view.Waiting, Since: ago(time.Minute), Counts: v1alpha1.UnitCounts{Total: 2, Updated: 1, Waiting: 1},
			ScaleSets: []v1alpha1.ScaleSetStatus{{
				Name: "pool", Image: "image-1", PreviousImage: "image-2", RolledBack: "images/image-2", Machines: 2, Outdated: 1,
				Operations: []v1alpha1.CloudOperation{{Kind: v1alpha1.CloudOperationSetImage}},
			}},
			Nodes: []view.Node{{Node: "x", State: v1alpha1.UnitOutdated, Reason: v1alpha1.ReasonSurgeExhausted, Message: "1 of 1 machines more than before"}},
		},
		{
			Kind: view.KindNodeRollout, Name: "steady", Version: "image-2", State: view.Complete, Since: ago(time.Hour), Counts: v1alpha1.UnitCounts{Total: 3, Updated: 3},
			ScaleSets: []v1alpha1.ScaleSetStatus{{Name: "pool", Machines: 3}, {Name: "back", Machines: 2, Image: "image-1", RolledBack: "image-2"}, {Name: "out"}, {Name: "sick", Machines: 1, Reason: v1alpha1.ReasonCloudDenied, Message: "403"}},
		},
	}
}

func TestFrameOfReplacements(t *testing.T) {
	golden(t, "status/"+"machines", frame(&shown{rollouts: machineRollouts()}, now, false).Text(0, false))
	golden(t, "status/"+"machines-wide", frame(&shown{rollouts: machineRollouts()[:1]}, now, true).Text(0, false))
}

func TestJournalOfReplacements(t *testing.T) {
	var out bytes.Buffer
	j := newJournal(&out, now, false)
	all := machineRollouts()
	j.show(&shown{rollouts: all[:1]}, "", now)
	n := &all[0].Nodes[2]
	n.Phase, n.Message = "Joining", "replaced by machine 14"
	j.show(&shown{rollouts: all[:1]}, "", now.Add(5*time.Second))
	golden(t, "status/"+"journal-machines", out.Bytes())
}
