// SPDX-License-Identifier: Apache-2.0

package events

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
)

func newPlan() *upgradev1.Plan {
	return &upgradev1.Plan{
		ObjectMeta: metav1.ObjectMeta{Namespace: "system-upgrade", Name: "k3s", UID: "u1"},
		Status:     upgradev1.PlanStatus{LatestVersion: "v1.30.1", LatestHash: "h1"},
	}
}

// The types and reasons are system-upgrade-controller's: people and alerts look for them.
func TestEvents(t *testing.T) {
	p := newPlan()
	for reason, tc := range map[string]struct {
		got           Event
		kind, message string
	}{
		"Validated":          {PlanValidated(p), "Normal", "The plan is valid"},
		"ValidateFailed":     {PlanValidateFailed(p, "bad"), "Warning", "The plan is not valid: bad"},
		"SelectNodesFailed":  {PlanSelectNodesFailed(p, "bad"), "Warning", "Nodes can't be selected: bad"},
		"ValidationFailed":   {PlanWindowsUnsupported(p, "n1", "bad"), "Warning", "Node n1: bad"},
		"Resolved":           {PlanResolved(p), "Normal", "Resolved latest version to v1.30.1, hash h1"},
		"ResolveFailed":      {PlanResolveFailed(p, "bad"), "Warning", "The version can't be resolved: bad"},
		"Waiting":            {PlanWaiting(p, "closed"), "Normal", "No node is started: closed"},
		"SyncJob":            {PlanSyncJob(p).Naming(p, []string{"n2", "n1", "n2"}), "Normal", "Started version v1.30.1 on Nodes n1,n2"},
		"JobComplete":        {PlanJobComplete(p).Naming(p, []string{"n1"}), "Normal", "Job completed on Nodes n1"},
		"JobCompleteWaiting": {PlanJobCompleteWaiting(p, "n1", 90*time.Second), "Normal", "Job completed on Node n1, its slot is kept for 1m30s"},
		"JobFailed":          {PlanJobFailed(p, "Job a/b failed"), "Warning", "Job a/b failed"},
		"Complete":           {PlanComplete(p), "Normal", "All selected nodes have version v1.30.1, hash h1"},
	} {
		if diff := cmp.Diff(Event{p, tc.kind, reason, tc.message}, tc.got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	for reason, tc := range map[string]struct {
		got           Event
		kind, message string
	}{
		"Starting":    {ControllerStarting("n1", "suc"), "Normal", "suc is starting"},
		"Started":     {ControllerStarted("n1", "suc"), "Normal", "suc has started"},
		"StartFailed": {ControllerStartFailed("n1", "suc", errors.New("bad")), "Warning", "suc could not start: bad"},
	} {
		// kubectl describe node finds Events by the node's name as uid, as the kubelet writes them.
		meta, ok := tc.got.Object.(metav1.Object)
		if !ok || meta.GetName() != "n1" || meta.GetUID() != "n1" {
			t.Errorf("%s is about %+v", reason, tc.got.Object)
		}
		if diff := cmp.Diff(Event{tc.got.Object, tc.kind, reason, tc.message}, tc.got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

// A rollout may start many nodes at once.
func TestPlanSyncJobOfManyNodes(t *testing.T) {
	p := &upgradev1.Plan{Status: upgradev1.PlanStatus{LatestVersion: "v1"}}
	e := PlanSyncJob(p).Naming(p, strings.Split("a b c d e f g h i j k l", " "))
	if want := "Started version v1 on Nodes a,b,c,d,e,f,g,h,i,j and 2 more"; e.Message != want {
		t.Errorf("got %s, want %s", e.Message, want)
	}
}
