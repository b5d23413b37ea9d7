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

func TestApproved(t *testing.T) {
	r := &v1alpha1.NodeRollout{}
	waited := &v1alpha1.WaveStatus{Name: "canary", Number: 1, State: v1alpha1.WaveWaitingForApproval, ApproveWith: "canary@1"}
	next := &v1alpha1.WaveStatus{Name: "rest", Number: 2}
	approval := func(of string) *v1alpha1.WaveApproval { return &v1alpha1.WaveApproval{Of: of, By: "jane"} }
	for name, tc := range map[string]struct {
		approval    *v1alpha1.WaveApproval
		before, now *v1alpha1.WaveStatus
		want        string
	}{
		"the next begins":    {approval("canary@1"), waited, next, "Wave canary was approved by jane (canary@1)"},
		"no further wave":    {approval("canary@1"), waited, nil, "Wave canary was approved by jane (canary@1)"},
		"by the annotation":  {nil, waited, next, ""},
		"of another version": {approval("canary@0"), waited, next, ""},
		"it still waits":     {approval("canary@1"), waited, waited, ""},
		"the first":          {approval("canary@1"), nil, waited, ""},
	} {
		got := ""
		for _, e := range Approved(r, tc.approval, tc.before, tc.now) {
			got += e.Message
		}
		if got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}
