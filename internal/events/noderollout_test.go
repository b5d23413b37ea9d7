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
		"Started":   {HostsStarted(r, []string{"n1", "n2"}), "Normal", "Started on Nodes n1,n2"},
		"Rebooting": {HostRebooting(r, "n1", ""), "Normal", "The host of Node n1 is ordered to reboot into its update"},
		"Updated":   {HostUpdated(r, "n1", "1.20.3"), "Normal", "Node n1 is updated to 1.20.3"},
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
