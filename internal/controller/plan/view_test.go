// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/kind/nodeturn"
	"moult.dev/moult/internal/turn"
	"moult.dev/moult/internal/view"
)

// TestViewGivesTheReasonsOfStatus compares what the status says of a node with what package view makes of the same Plan and Node, for all states of
// TestTurns. View does not read Jobs. So what only a Job shows it takes from the lists of the status, and all else it must find without them.
func TestViewGivesTheReasonsOfStatus(t *testing.T) {
	compared, bare := 0, 0
	for name, tc := range judgements() {
		w, n, jobs := tc.build()
		if slices.Contains([]string{"not selected", "running, and not selected", "failed, and not selected", "claimed, and not selected"}, name) {
			continue // Its Plan selects nothing by a selector that is not in its spec.
		}
		judges(t, w, n, tc.claims, jobs, tc.pods) // It writes the claims on the Node.
		s := snapshotOf(n)
		s.jobs[n.Name], s.pods[n.Name] = jobs, tc.pods
		c := &Controller{Engine: turn.NewEngine(kind, clocktesting.NewFakePassiveClock(now), nil, nil, nil, nil, nil)}
		p := c.newPass(w, s)
		if w.Ready {
			p.Decide(w.Fleet)
		}
		p.count()
		if len(p.Turns) == 0 || len(p.Decision.Start) > 0 || p.Turns[0].Step == nodeturn.StepRelease || p.Turns[0].Step == nodeturn.StepFinish ||
			p.Turns[0].Step == nodeturn.StepFail || p.Turns[0].Claim == nil && len(jobs) > 0 {
			continue // Its turn is about to begin, to fail or to end, or a Job alone shows that it is in one.
		}
		complete := upgradev1.Condition{Type: upgradev1.ConditionComplete, Status: metav1.ConditionFalse, Reason: upgradev1.ReasonSyncJob}
		if !w.Ready {
			complete.Reason = upgradev1.ReasonNotReady
		}
		w.Plan.Status.SetCondition(complete, now)
		status := map[string]string{}
		for _, list := range [][]v1alpha1.UnitStatus{w.Plan.Status.Failed, w.Plan.Status.Updating, w.Plan.Status.Waiting} {
			for _, u := range list {
				status[u.Node] = string(u.Phase) + " " + string(u.Reason) + ": " + u.Message
			}
		}
		if diff := cmp.Diff(status, seenBy(w.Plan, n)); diff != "" {
			t.Errorf("%s (-status +view):\n%s", name, diff)
		}
		compared += len(status)
		if len(jobs) > 0 || p.Turns[0].Pending || p.Turns[0].Unit.Reason == v1alpha1.ReasonWindowsImageMissing {
			continue // The Job, its absence, or a setting of the operator is the reason.
		}
		w.Plan.Status.Failed, w.Plan.Status.Updating, w.Plan.Status.Waiting = nil, nil, nil
		if diff := cmp.Diff(status, seenBy(w.Plan, n)); diff != "" {
			t.Errorf("%s, without the lists (-status +view):\n%s", name, diff)
		}
		bare += len(status)
	}
	if compared < 25 || bare < 6 {
		t.Errorf("only %d units are compared, %d of them without the lists", compared, bare)
	}
}

// seenBy is what view says of a node that is not updated.
func seenBy(p *upgradev1.Plan, n *corev1.Node) map[string]string {
	seen := map[string]string{}
	for _, line := range view.See([]upgradev1.Plan{*p}, []corev1.Node{*n}, nil, now).Rollouts()[0].Nodes {
		if line.State != v1alpha1.UnitUpdated {
			seen[line.Node] = string(line.Phase) + " " + string(line.Reason) + ": " + line.Message
		}
	}
	return seen
}
