// SPDX-License-Identifier: Apache-2.0

package hostupdate

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/view"
)

// viewDiffers compares what the status says of each node with what package view makes of the same objects.
func viewDiffers(r *v1alpha1.NodeRollout, now time.Time, nodes ...*corev1.Node) string {
	status, seen := map[string]string{}, map[string]string{}
	for _, list := range [][]v1alpha1.UnitStatus{r.Status.Failed, r.Status.Updating, r.Status.Waiting} {
		for _, u := range list {
			status[u.Node] = string(u.Phase) + " " + string(u.Reason) + ": " + u.Message
		}
	}
	bare := r.DeepCopy() // View prefers what the lists say.
	bare.Status.Failed, bare.Status.Updating, bare.Status.Waiting = nil, nil, nil
	objects := make([]corev1.Node, 0, len(nodes))
	for _, n := range nodes {
		objects = append(objects, *n)
	}
	for _, n := range view.See(nil, objects, nil, now).NodeRollouts([]v1alpha1.NodeRollout{*bare}).Rollouts()[0].Nodes {
		if n.State != v1alpha1.UnitUpdated {
			seen[n.Node] = string(n.Phase) + " " + string(n.Reason) + ": " + n.Message
		}
	}
	return cmp.Diff(status, seen)
}

// TestViewGivesTheReasonsOfStatus compares them for all states of TestJudge.
func TestViewGivesTheReasonsOfStatus(t *testing.T) {
	compared := 0
	for _, tc := range judgements() {
		r := tc.rollout.DeepCopy()
		n := tc.node.DeepCopy()
		asked(newWorld(t, r), n)
		p := newTestController(t, nil).newPass(r, nil, snapshotOf(n))
		p.Decide(p.w.Fleet)
		if p.count(); len(p.Decision.Start) > 0 {
			continue // Its turn is about to begin.
		}
		compared += len(r.Status.Failed) + len(r.Status.Updating) + len(r.Status.Waiting)
		if diff := viewDiffers(r, now, n); diff != "" {
			t.Errorf("%s (-status +view):\n%s", tc.name, diff)
		}
	}
	if compared < 70 {
		t.Errorf("only %d units are compared", compared)
	}
}
