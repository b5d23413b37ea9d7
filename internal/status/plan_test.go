// SPDX-License-Identifier: Apache-2.0

package status

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
)

var (
	now   = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	later = now.Add(time.Minute)
)

func newPlan() *upgradev1.Plan {
	return &upgradev1.Plan{ObjectMeta: metav1.ObjectMeta{Name: "k3s", Generation: 4}}
}

// conditions are what a Plan's conditions say, by type. Their times are another matter, as is the generation, which is the
// Plan's in every one.
func conditions(t *testing.T, p *upgradev1.Plan) map[string]condition {
	t.Helper()
	all := map[string]condition{}
	for _, c := range p.Status.Conditions {
		if c.ObservedGeneration != p.Generation {
			t.Errorf("%s is of generation %d", c.Type, c.ObservedGeneration)
		}
		if _, twice := all[c.Type]; twice {
			t.Errorf("there are two of %s", c.Type)
		}
		all[c.Type] = condition{c.Status, c.Reason, c.Message}
	}
	return all
}

type condition struct {
	Status          metav1.ConditionStatus
	Reason, Message string
}

func TestInitPlan(t *testing.T) {
	p := newPlan()
	p.Status.Conditions = []upgradev1.Condition{{Type: upgradev1.ConditionLatestResolved, Status: metav1.ConditionTrue, Reason: "Version", ObservedGeneration: 4}}
	InitPlan(p, now)
	InitPlan(p, later)
	unknown := upgradev1.Condition{
		Status: metav1.ConditionUnknown, ObservedGeneration: 4, LastUpdateTime: "2026-11-20T12:00:00Z", LastTransitionTime: "2026-11-20T12:00:00Z",
	}
	validated, complete := unknown, unknown
	validated.Type, complete.Type = upgradev1.ConditionValidated, upgradev1.ConditionComplete
	if diff := cmp.Diff([]upgradev1.Condition{p.Status.Conditions[0], validated, complete}, p.Status.Conditions); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := p.Status.Conditions[0]; got.Status != metav1.ConditionTrue || got.Reason != "Version" || got.LastUpdateTime != "" {
		t.Errorf("changed what was there: %+v", got)
	}

	fresh := newPlan()
	InitPlan(fresh, now)
	var order []string
	for _, c := range fresh.Status.Conditions {
		order = append(order, c.Type)
	}
	if diff := cmp.Diff([]string{"Validated", "LatestResolved", "Complete"}, order); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

func TestPlanConditions(t *testing.T) {
	bad := errors.New("bad")
	for name, tc := range map[string]struct {
		set  func(*upgradev1.Plan)
		kind string
		want condition
	}{
		"valid": {
			func(p *upgradev1.Plan) { SetPlanValidated(p, nil, now) },
			"Validated", condition{metav1.ConditionTrue, "PlanIsValid", ""},
		},
		"invalid": {
			func(p *upgradev1.Plan) { SetPlanValidated(p, bad, now) },
			"Validated", condition{metav1.ConditionFalse, "Error", "bad"},
		},
		"valid again": {
			func(p *upgradev1.Plan) { SetPlanValidated(p, bad, now); SetPlanValidated(p, nil, now) },
			"Validated", condition{metav1.ConditionTrue, "PlanIsValid", ""},
		},
		"not known yet": {
			func(p *upgradev1.Plan) { SetPlanUnresolved(p, nil, now) },
			"LatestResolved", condition{metav1.ConditionUnknown, "Channel", "the channel is being asked"},
		},
		"not to be known": {
			func(p *upgradev1.Plan) { SetPlanUnresolved(p, bad, now) },
			"LatestResolved", condition{metav1.ConditionFalse, "Error", "bad"},
		},
		"by version": {
			func(p *upgradev1.Plan) { SetPlanResolved(p, upgradev1.ReasonVersion, "", now) },
			"LatestResolved", condition{metav1.ConditionTrue, "Version", ""},
		},
		"by channel, with a note": {
			func(p *upgradev1.Plan) { SetPlanResolved(p, upgradev1.ReasonChannel, "v1 stays", now) },
			"LatestResolved", condition{metav1.ConditionTrue, "Channel", "v1 stays"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlan()
			tc.set(p)
			if diff := cmp.Diff(map[string]condition{tc.kind: tc.want}, conditions(t, p)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestPlanProgress(t *testing.T) {
	const (
		yes = metav1.ConditionTrue
		no  = metav1.ConditionFalse
	)
	// want is Complete, Ready, Reconciling and Stalled, in this order.
	type want [4]condition
	counts := func(updated, updating, failed, waiting int32) v1alpha1.UnitCounts {
		return v1alpha1.UnitCounts{Total: updated + updating + failed + waiting, Updated: updated, Updating: updating, Failed: failed, Waiting: waiting}
	}
	for name, tc := range map[string]struct {
		progress Progress
		want     want
	}{
		"being resolved": {
			Progress{},
			want{
				{no, "NotReady", "plan is not valid and resolved"},
				{no, "NotReady", "plan is not valid and resolved"},
				{yes, "NotReady", ""},
				{no, "NotReady", ""},
			},
		},
		"not to be resolved": {
			Progress{Problem: "secrets \"s\" not found", Counts: counts(0, 1, 1, 0), Failure: "it broke"},
			want{
				{no, "NotReady", "plan is not valid and resolved"},
				{no, "NotReady", "secrets \"s\" not found"},
				{no, "NotReady", ""},
				{yes, "NotReady", "secrets \"s\" not found"},
			},
		},
		"no node": {
			Progress{Ready: true},
			want{
				{yes, "Complete", ""},
				{yes, "Complete", "0 of 0 nodes updated"},
				{no, "Complete", ""},
				{no, "Complete", ""},
			},
		},
		"complete": {
			Progress{Ready: true, Counts: counts(3, 0, 0, 0)},
			want{
				{yes, "Complete", ""},
				{yes, "Complete", "3 of 3 nodes updated"},
				{no, "Complete", ""},
				{no, "Complete", ""},
			},
		},
		"complete, but for nodes that opted out": {
			Progress{Ready: true, Counts: counts(3, 0, 0, 0), Wait: "", WaitMessage: ""},
			want{
				{yes, "Complete", ""},
				{yes, "Complete", "3 of 3 nodes updated"},
				{no, "Complete", ""},
				{no, "Complete", ""},
			},
		},
		"in flight": {
			Progress{Ready: true, Counts: counts(1, 2, 0, 3), Wait: v1alpha1.ReasonMaxConcurrent, WaitMessage: "2 of 2 slots taken"},
			want{
				{no, "SyncJob", ""},
				{no, "SyncJob", "1 of 6 nodes updated, 2 updating, 3 waiting"},
				{yes, "SyncJob", ""},
				{no, "SyncJob", ""},
			},
		},
		"in flight, and the window has closed": {
			Progress{Ready: true, Counts: counts(1, 1, 0, 1), Wait: v1alpha1.ReasonOutsideWindow, WaitMessage: "it opens soon"},
			want{
				{no, "SyncJob", ""},
				{no, "SyncJob", "1 of 3 nodes updated, 1 updating, 1 waiting"},
				{yes, "SyncJob", ""},
				{no, "SyncJob", ""},
			},
		},
		"outside of the window": {
			Progress{Ready: true, Counts: counts(1, 0, 0, 2), Wait: v1alpha1.ReasonOutsideWindow, WaitMessage: "current time is not within configured window, it opens at noon"},
			want{
				{no, "Waiting", "current time is not within configured window"},
				{no, "Waiting", "1 of 3 nodes updated, 2 waiting: current time is not within configured window, it opens at noon"},
				{yes, "Waiting", ""},
				{no, "Waiting", ""},
			},
		},
		"claimed": {
			Progress{Ready: true, Counts: counts(1, 0, 0, 2), Wait: v1alpha1.ReasonClaimed, WaitMessage: "claimed by Plan/a/b"},
			want{
				{no, "Waiting", "claimed by Plan/a/b"},
				{no, "Waiting", "1 of 3 nodes updated, 2 waiting: claimed by Plan/a/b"},
				{yes, "Waiting", ""},
				{no, "Waiting", ""},
			},
		},
		"waiting, and no one says for what": {
			Progress{Ready: true, Counts: counts(1, 0, 0, 2)},
			want{
				{no, "Resolved", ""},
				{no, "Resolved", "1 of 3 nodes updated, 2 waiting"},
				{yes, "Resolved", ""},
				{no, "Resolved", ""},
			},
		},
		"one failed, others go on": {
			Progress{Ready: true, Counts: counts(1, 1, 1, 1), Failure: "Job a/b failed on Node c: D: e", Wait: v1alpha1.ReasonMaxConcurrent, WaitMessage: "2 of 2 slots taken"},
			want{
				{no, "JobFailed", "Job a/b failed on Node c: D: e"},
				{no, "JobFailed", "1 of 4 nodes updated, 1 updating, 1 failed, 1 waiting: Job a/b failed on Node c: D: e"},
				{yes, "JobFailed", ""},
				{no, "JobFailed", ""},
			},
		},
		"failures hold every slot": {
			Progress{Ready: true, Counts: counts(1, 0, 2, 1), Failure: "it broke", Wait: v1alpha1.ReasonMaxConcurrent, WaitMessage: "2 of 2 slots taken", Stuck: true},
			want{
				{no, "JobFailed", "it broke"},
				{no, "JobFailed", "1 of 4 nodes updated, 2 failed, 1 waiting: it broke"},
				{no, "JobFailed", ""},
				{yes, "JobFailed", "1 of 4 nodes updated, 2 failed, 1 waiting: it broke"},
			},
		},
		"one failed, and no one says why": {
			Progress{Ready: true, Counts: counts(0, 0, 1, 0)},
			want{
				{no, "JobFailed", ""},
				{no, "JobFailed", "0 of 1 nodes updated, 1 failed"},
				{yes, "JobFailed", ""},
				{no, "JobFailed", ""},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlan()
			SetPlanProgress(p, tc.progress, now)
			want := map[string]condition{"Complete": tc.want[0], "Ready": tc.want[1], "Reconciling": tc.want[2], "Stalled": tc.want[3]}
			if diff := cmp.Diff(want, conditions(t, p)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			// What is said a second time changes nothing, not even a time.
			before := p.DeepCopy()
			SetPlanProgress(p, tc.progress, later)
			if diff := cmp.Diff(before, p); diff != "" {
				t.Errorf("said again:\n%s", diff)
			}
		})
	}
}

// Whatever is reported, one of Ready, Reconciling and Stalled is true, as kstatus wants it, and no more than one.
func TestPlanProgressKstatus(t *testing.T) {
	for bits := range 1 << 8 {
		bit := func(n int) int32 { return int32(bits >> n & 1) }
		g := Progress{Ready: bit(0) == 1, Counts: v1alpha1.UnitCounts{Updated: bit(1), Updating: bit(2), Failed: bit(3), Waiting: bit(4)}}
		g.Stuck = bit(5) == 1 && g.Counts.Failed == 1 && g.Ready
		if bit(6) == 1 {
			g.Problem = "bad"
		}
		if bit(7) == 1 {
			g.Wait, g.WaitMessage = v1alpha1.ReasonOutsideWindow, "closed"
		}
		p := newPlan()
		SetPlanProgress(p, g, now)
		got := conditions(t, p)
		var yes []string
		for _, kind := range []string{"Ready", "Reconciling", "Stalled"} {
			if got[kind].Status == metav1.ConditionTrue {
				yes = append(yes, kind)
			}
		}
		if len(yes) != 1 || got["Ready"].Status != got["Complete"].Status {
			t.Errorf("%+v: true are %v; Complete is %s", g, yes, got["Complete"].Status)
		}
		for kind, c := range got {
			if diff := cmp.Diff(got["Complete"].Reason, c.Reason, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%+v: %s has another reason than Complete:\n%s", g, kind, diff)
			}
		}
	}
}
