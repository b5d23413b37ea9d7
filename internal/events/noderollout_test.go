// SPDX-License-Identifier: Apache-2.0

package events

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"moult.dev/moult/api/v1alpha1"
)

func TestNodeRolloutEvents(t *testing.T) {
	r := &v1alpha1.NodeRollout{
		ObjectMeta: metav1.ObjectMeta{Name: "os", UID: "u1"},
		Status:     v1alpha1.NodeRolloutStatus{Revision: "1.20.3", Counts: &v1alpha1.UnitCounts{Total: 3, Updated: 3}},
	}
	wave := &v1alpha1.WaveStatus{Name: "canary", Number: 1, Of: 2, Nodes: 1, Updated: 1, State: v1alpha1.WaveWaitingForApproval}
	for reason, tc := range map[string]struct {
		got           Event
		kind, message string
	}{
		"Invalid":   {NodeRolloutInvalid(r, "bad"), "Warning", "Nothing is done: bad"},
		"Revision":  {NodeRolloutRevision(r), "Normal", "Nodes are brought to 1.20.3"},
		"Started":   {HostsStarted(r).Naming(r, []string{"n1", "n2"}), "Normal", "Started on Nodes n1,n2"},
		"Rebooting": {HostsRebooting(r, "").Naming(r, []string{"n1"}), "Normal", "Hosts are ordered to reboot into their update: Nodes n1"},
		"Updated":   {HostsUpdated(r, "1.20.3").Naming(r, []string{"n1", "n2"}), "Normal", "Updated to 1.20.3: Nodes n1,n2"},
		"Failed":    {NodeFailed(r, "it broke"), "Warning", "it broke"},
		"Halted":    {NodeRolloutHalted(r, "bad"), "Warning", "No more nodes are started: bad"},
		"Complete":  {NodeRolloutComplete(r), "Normal", "All 3 nodes are updated"},
		"WaitingForApproval": {
			NodeRolloutWave(r, wave), "Normal", "Wave 1 of 2 (canary), 1 of 1 nodes updated, approve it with kubectl moult approve noderollout/os",
		},
	} {
		if diff := cmp.Diff(Event{r, tc.kind, reason, tc.message}, tc.got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}
