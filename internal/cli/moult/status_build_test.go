// SPDX-License-Identifier: Apache-2.0

package moult

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/view"
)

var (
	now    = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	update = flag.Bool("update", false, "write the golden files anew")
)

// ago is a time so long before now.
func ago(d time.Duration) *metav1.Time { return &metav1.Time{Time: now.Add(-d)} }

const slots = "4 of 4 slots taken (machine-2, sim-0003, sim-0007 and 1 more)"

// agents is a rollout in the middle: one node failed, three in a turn, waiting ones for two reasons, and updated ones.
func agents(waiting, updated int) view.Rollout {
	r := view.Rollout{
		Kind: "Plan", Namespace: "system-upgrade", Name: "agents", Version: "v1.1.0", State: view.Progressing, Since: ago(83 * time.Second),
		Nodes: []view.Node{
			{Node: "sim-0003", State: v1alpha1.UnitFailed, Since: ago(30 * time.Second), Started: ago(time.Minute), Reason: v1alpha1.ReasonJobFailed,
				Message: "Job system-upgrade/apply-agents-on-sim-0003 failed on Node sim-0003: BackoffLimitExceeded: Job has reached the specified backoff limit"},
			{Node: "machine-2", State: v1alpha1.UnitUpdating, Phase: v1alpha1.PhaseDraining, Since: ago(8 * time.Second), Started: ago(12 * time.Second), Cordoned: true},
			{Node: "sim-0007", State: v1alpha1.UnitUpdating, Phase: v1alpha1.PhaseStarting, Since: ago(time.Second), Started: ago(time.Second),
				Message: "container upgrade waits: ErrImagePull"},
			{Node: "sim-0011", State: v1alpha1.UnitSoaking, Phase: v1alpha1.PhaseSoaking, Since: ago(0), Started: ago(2 * time.Second), NotReady: true},
		},
	}
	for i := range waiting {
		r.Nodes = append(r.Nodes, view.Node{Node: fmt.Sprintf("sim-%04d", 100+i), State: v1alpha1.UnitOutdated, Reason: v1alpha1.ReasonMaxConcurrent, Message: slots, Cordoned: i == 1})
	}
	r.Nodes = append(r.Nodes, view.Node{Node: "sim-0001", State: v1alpha1.UnitOutdated, Reason: v1alpha1.ReasonClaimed, Message: "claimed by Plan/system-upgrade/other since 2026-11-20T11:59:00Z"})
	for i := range updated {
		r.Nodes = append(r.Nodes, view.Node{Node: fmt.Sprintf("sim-%04d", 200+i), State: v1alpha1.UnitUpdated})
	}
	r.Counts = v1alpha1.UnitCounts{Total: int32(len(r.Nodes)), Updated: int32(updated), Updating: 3, Failed: 1, Waiting: int32(waiting + 1)}
	return r
}

func servers() view.Rollout {
	return view.Rollout{
		Kind: "Plan", Namespace: "system-upgrade", Name: "servers", Version: "v1.1.0", State: view.Complete, Since: ago(time.Minute), OptedOut: 1,
		Nodes:  []view.Node{{Node: "machine-1", State: v1alpha1.UnitUpdated}},
		Counts: v1alpha1.UnitCounts{Total: 1, Updated: 1},
	}
}

// steered are rollouts that wait for a person: one paused, one for approval, one halted.
func steered() []view.Rollout {
	rollout := func(name, message string, reason v1alpha1.Reason) view.Rollout {
		return view.Rollout{
			Kind: "Plan", Namespace: "fleet", Name: name, Version: "v2", State: view.Waiting, Since: ago(time.Hour),
			Nodes: []view.Node{
				{Node: "n1", State: v1alpha1.UnitUpdated}, {Node: "n2", State: v1alpha1.UnitOutdated, Reason: reason, Message: message},
			},
			Counts: v1alpha1.UnitCounts{Total: 2, Updated: 1, Waiting: 1},
		}
	}
	paused := rollout("paused", "the rollout is paused", v1alpha1.ReasonPaused)
	paused.Paused = true
	canary := rollout("canary", "wave 2 (tenth) has not begun: wave 1 (canary) waits for approval", v1alpha1.ReasonWaitingForApproval)
	canary.Wave = &v1alpha1.WaveStatus{
		Name: "canary", Number: 1, Of: 3, State: v1alpha1.WaveWaitingForApproval, Since: *ago(time.Minute), Nodes: 1, Updated: 1, ApproveWith: "canary@abc",
	}
	soaks := rollout("soaks", "wave 2 (tenth) has not begun: wave 1 (canary) soaks until 2026-11-20T13:00:00Z", v1alpha1.ReasonWaveSoaking)
	soaks.Wave = &v1alpha1.WaveStatus{
		Name: "canary", Number: 1, Of: 3, State: v1alpha1.WaveSoaking, Since: *ago(time.Minute), Nodes: 1, Updated: 1, Message: "wave 1 (canary) soaks until 2026-11-20T13:00:00Z",
	}
	const tooMany = "2 nodes failed; maxFailures is 1: n3, n4"
	halted := rollout("halted", tooMany, v1alpha1.ReasonHalted)
	halted.Halted, halted.State, halted.Message = tooMany, view.Stalled, tooMany
	return []view.Rollout{paused, canary, soaks, halted}
}

// budgets are an open one, and one that is blocked.
func budgets() []view.Budget {
	return []view.Budget{
		{Name: "everything", State: view.BudgetOpen, Matched: 9, Unavailable: 1, Limit: ptr.To(3), Allowed: ptr.To[int32](2),
			Holders: []v1alpha1.BudgetHolder{
				{Node: "n3", Cause: v1alpha1.CauseNotReady, Message: "not ready since 2026-11-20T11:00:00Z"},
			}},
		{Name: "shop", State: view.BudgetBlocked, Matched: 4, Allowed: ptr.To[int32](0), BlockedBy: []v1alpha1.BudgetBlock{
			{Gate: v1alpha1.ReasonWorkloadsUnavailable, Message: "Deployment shop/cart has 1 of 3 available", Since: *ago(4 * time.Minute)},
		}},
	}
}

// golden compares with a file of testdata.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got), go test -update writes it anew:\n%s", path, diff)
	}
}
