// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/kind/plan"
	"moult.dev/moult/internal/rollout"
	"moult.dev/moult/internal/status"
	"moult.dev/moult/internal/turn"
)

// picture is a snapshot that a test puts together, node by node.
type picture struct {
	*plan.World
	snapshot
}

func newPicture(p *upgradev1.Plan) *picture {
	return &picture{World: newWorld(p), snapshot: snapshotOf()}
}

func (f *picture) add(n *corev1.Node) {
	f.Objects, f.snapshot.Nodes[n.Name] = append(f.Objects, n), rollout.NewNode(n)
}

// turning adds a node with the Plan's claim, changed like this, and its Job, changed like that.
func (f *picture) turning(n *corev1.Node, claim func(*v1alpha1.Claim), job func(*batchv1.Job)) {
	c := claimed(claim)
	c.Attempt = f.Attempt(n)
	holding(c)(n)
	f.add(n)
	f.jobs[n.Name] = []*batchv1.Job{newTurnJob(f.Plan, n, job)}
}

// report judges and decides, and returns what the status is made of.
func (f *picture) report(problem error) status.Progress {
	c := &Controller{Engine: turn.NewEngine(kind, clocktesting.NewFakePassiveClock(now), nil, nil, nil, nil, nil)}
	slices.SortFunc(f.Objects, func(a, b *corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	p := c.newPass(f.World, f.snapshot)
	p.problem = problem
	if f.Ready {
		p.Decide(f.snapshot.Fleet)
	}
	return p.count()
}

func asIs(*v1alpha1.Claim) {}

func isRunning(*batchv1.Job) {}

func failedAt(d time.Duration, why string) func(*v1alpha1.Claim) {
	return func(c *v1alpha1.Claim) {
		c.Failed = &v1alpha1.ClaimFailure{Reason: v1alpha1.ReasonJobFailed, Message: why, Time: ago(d)}
	}
}

func TestCount(t *testing.T) {
	f := newPicture(newPlan(soaks(time.Hour), func(p *upgradev1.Plan) { p.Spec.Concurrency = 5 }))
	f.add(newNode("updated-1", labelled(hash)))
	f.add(newNode("updated-2", labelled(hash)))
	f.add(newNode("opted-out", labelled("disabled")))
	f.turning(newNode("zebra"), asIs, isRunning)
	f.turning(newNode("ant"), func(c *v1alpha1.Claim) { c.Since = ago(20 * time.Minute) }, isRunning)
	f.turning(newNode("bee"), func(c *v1alpha1.Claim) { c.Soaking = ptr.To(ago(time.Minute)) }, succeeded)
	f.turning(newNode("cat"), failedAt(3*time.Minute, "cat broke"), failed)
	f.turning(newNode("dog"), failedAt(2*time.Minute, "dog broke"), failed)
	f.turning(newNode("eel"), failedAt(4*time.Minute, "eel broke"), failed)
	f.add(newNode("waiting-1"))
	f.add(newNode("waiting-2", annotated(v1alpha1.AnnotationClaims, "{")))

	progress := f.report(nil)
	full := "6 of 5 slots taken, 3 of them by failed nodes (cat, dog, eel)"
	counts := v1alpha1.UnitCounts{Total: 10, Updated: 2, Updating: 3, Failed: 3, Waiting: 2}
	want := upgradev1.PlanStatus{
		LatestVersion: latest, LatestHash: hash, Counts: &counts,
		// system-upgrade-controller's list: hostnames, in the order of the nodes' names.
		History: []v1alpha1.Run{{
			Revision: latest + "@" + hash[:8], CreatedAt: ago(0), StartedAt: ptr.To(ago(0)), FailedAt: ptr.To(ago(0)), Total: 10, Updated: 2,
			Ongoing: []v1alpha1.RunState{v1alpha1.RunFailed}, Failures: []v1alpha1.RunFailure{{Reason: v1alpha1.ReasonJobFailed, Nodes: 3}},
		}},
		Applying: []string{"host-ant", "host-bee", "host-cat", "host-dog", "host-eel", "host-zebra"},
		Updating: []v1alpha1.UnitStatus{
			{Node: "ant", Phase: v1alpha1.PhaseStarting, Message: noPod(f, "ant"), Since: ptr.To(ago(20 * time.Minute))},
			{Node: "zebra", Phase: v1alpha1.PhaseStarting, Message: noPod(f, "zebra"), Since: ptr.To(ago(10 * time.Minute))},
			{Node: "bee", Phase: v1alpha1.PhaseSoaking, Since: ptr.To(ago(time.Minute))},
		},
		Failed: []v1alpha1.UnitStatus{
			{Node: "eel", Reason: v1alpha1.ReasonJobFailed, Message: "eel broke", Since: ptr.To(ago(4 * time.Minute))},
			{Node: "cat", Reason: v1alpha1.ReasonJobFailed, Message: "cat broke", Since: ptr.To(ago(3 * time.Minute))},
			{Node: "dog", Reason: v1alpha1.ReasonJobFailed, Message: "dog broke", Since: ptr.To(ago(2 * time.Minute))},
		},
		Waiting: []v1alpha1.UnitStatus{
			{Node: "waiting-2", Reason: v1alpha1.ReasonClaimUnreadable, Message: "annotation moult.dev/claims can't be read"},
			{Node: "waiting-1", Reason: v1alpha1.ReasonMaxConcurrent, Message: full},
		},
	}
	if diff := cmp.Diff(want, f.Plan.Status); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	wantProgress := status.Progress{
		Ready: true, Counts: counts, Failure: "dog broke",
		Wait: v1alpha1.ReasonClaimUnreadable, WaitMessage: "annotation moult.dev/claims can't be read",
	}
	if diff := cmp.Diff(wantProgress, progress); diff != "" {
		t.Errorf("progress (-want +got):\n%s", diff)
	}
}

func noPod(f *picture, node string) string {
	return "its Job has no pod: kubectl describe job -n system-upgrade " + f.jobs[node][0].Name + " shows why"
}

// A status stays small in a large cluster, and lists the oldest.
func TestCountLists(t *testing.T) {
	f := newPicture(newPlan(func(p *upgradev1.Plan) { p.Spec.Concurrency = 60 }))
	for i := range 30 {
		f.turning(newNode(fmt.Sprintf("running-%02d", i)), func(c *v1alpha1.Claim) { c.Since = ago(time.Duration(100+i) * time.Second) }, isRunning)
		f.turning(newNode(fmt.Sprintf("failed-%02d", i)), failedAt(time.Minute, "it broke"), failed)
	}
	for i := range 50 {
		f.add(newNode(fmt.Sprintf("waiting-%02d", i)))
	}
	progress := f.report(nil)
	s := &f.Plan.Status
	if len(s.Updating) != 20 || len(s.Failed) != 20 || len(s.Waiting) != 20 || len(s.Applying) != 60 {
		t.Errorf("lists %d, %d, %d and %d", len(s.Updating), len(s.Failed), len(s.Waiting), len(s.Applying))
	}
	if s.Updating[0].Node != "running-29" || s.Updating[19].Node != "running-10" {
		t.Errorf("updating are listed from %s to %s", s.Updating[0].Node, s.Updating[19].Node)
	}
	// Of the same age they come by name.
	if s.Failed[0].Node != "failed-00" || s.Failed[19].Node != "failed-19" {
		t.Errorf("failed are listed from %s to %s", s.Failed[0].Node, s.Failed[19].Node)
	}
	if diff := cmp.Diff(v1alpha1.UnitCounts{Total: 110, Updating: 30, Failed: 30, Waiting: 50}, progress.Counts); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// The waiting ones are those that come next.
	for i := 1; i < len(s.Waiting); i++ {
		a := rollout.Rank(types.UID("uid-"+s.Waiting[i-1].Node), uid, hash)
		b := rollout.Rank(types.UID("uid-"+s.Waiting[i].Node), uid, hash)
		if a > b {
			t.Errorf("%s is listed before %s", s.Waiting[i-1].Node, s.Waiting[i].Node)
		}
	}
}

func TestCountProgress(t *testing.T) {
	closed := window([]upgradev1.Day{"fri"}, "22:00", "23:00", "UTC")
	for name, tc := range map[string]struct {
		plan    []func(*upgradev1.Plan)
		build   func(*picture)
		problem error
		want    status.Progress
		// complete is the condition Complete that it makes.
		complete string
	}{
		"no node": {
			build: func(*picture) {},
			want:  status.Progress{Ready: true}, complete: "True Complete",
		},
		"opted out": {
			build: func(f *picture) { f.add(newNode("a", labelled("disabled"))) },
			want:  status.Progress{Ready: true}, complete: "True Complete",
		},
		"updated": {
			build: func(f *picture) { f.add(newNode("a", labelled(hash))) },
			want:  status.Progress{Ready: true, Counts: v1alpha1.UnitCounts{Total: 1, Updated: 1}}, complete: "True Complete",
		},
		"in flight": {
			build: func(f *picture) {
				f.turning(newNode("a"), asIs, isRunning)
				f.add(newNode("b", labelled(hash)))
			},
			want: status.Progress{Ready: true, Counts: v1alpha1.UnitCounts{Total: 2, Updating: 1, Updated: 1}}, complete: "False SyncJob",
		},
		"outside of the window": {
			build: func(f *picture) { f.add(newNode("a")) }, plan: []func(*upgradev1.Plan){closed},
			want: status.Progress{
				Ready: true, Counts: v1alpha1.UnitCounts{Total: 1, Waiting: 1}, Wait: v1alpha1.ReasonOutsideWindow,
				WaitMessage: "current time is not within configured window, it opens at 2026-11-20T22:00:00Z",
			},
			complete: "False Waiting: current time is not within configured window",
		},
		"concurrency 0": {
			plan:  []func(*upgradev1.Plan){func(p *upgradev1.Plan) { p.Spec.Concurrency = 0 }},
			build: func(f *picture) { f.add(newNode("a")) },
			want: status.Progress{
				Ready: true, Counts: v1alpha1.UnitCounts{Total: 1, Waiting: 1}, Wait: v1alpha1.ReasonMaxConcurrent,
				WaitMessage: "the concurrency is 0, so no node is started",
			},
			complete: "False Waiting: the concurrency is 0, so no node is started",
		},
		"failures hold every slot": {
			plan: []func(*upgradev1.Plan){func(p *upgradev1.Plan) { p.Spec.Concurrency = 1 }},
			build: func(f *picture) {
				f.turning(newNode("a"), failedAt(time.Minute, "a broke"), failed)
				f.add(newNode("b"))
			},
			want: status.Progress{
				Ready: true, Counts: v1alpha1.UnitCounts{Total: 2, Failed: 1, Waiting: 1}, Failure: "a broke", Wait: v1alpha1.ReasonMaxConcurrent,
				WaitMessage: "1 of 1 slots taken, 1 of them by failed nodes (a)", Stuck: true,
			},
			complete: "False JobFailed: a broke",
		},
		// Its opening changes nothing.
		"failures hold every slot, and the window is closed": {
			plan: []func(*upgradev1.Plan){closed, func(p *upgradev1.Plan) { p.Spec.Concurrency = 1 }},
			build: func(f *picture) {
				f.turning(newNode("a"), failedAt(time.Minute, "a broke"), failed)
				f.add(newNode("b"))
			},
			want: status.Progress{
				Ready: true, Counts: v1alpha1.UnitCounts{Total: 2, Failed: 1, Waiting: 1}, Failure: "a broke", Wait: v1alpha1.ReasonOutsideWindow,
				WaitMessage: "current time is not within configured window, it opens at 2026-11-20T22:00:00Z", Stuck: true,
			},
			complete: "False JobFailed: a broke",
		},
		"all that is left has failed": {
			build:    func(f *picture) { f.turning(newNode("a"), failedAt(time.Minute, "a broke"), failed) },
			want:     status.Progress{Ready: true, Counts: v1alpha1.UnitCounts{Total: 1, Failed: 1}, Failure: "a broke", Stuck: true},
			complete: "False JobFailed: a broke",
		},
		"one failed, and another goes on": {
			build: func(f *picture) {
				f.turning(newNode("a"), failedAt(time.Minute, "a broke"), failed)
				f.turning(newNode("b"), asIs, isRunning)
			},
			want:     status.Progress{Ready: true, Counts: v1alpha1.UnitCounts{Total: 2, Failed: 1, Updating: 1}, Failure: "a broke"},
			complete: "False JobFailed: a broke",
		},
		// Nothing but the window keeps the others: it goes on by itself.
		"one failed, and the others wait for the window": {
			build: func(f *picture) {
				f.turning(newNode("a"), failedAt(time.Minute, "a broke"), failed)
				f.add(newNode("b"))
			}, plan: []func(*upgradev1.Plan){closed},
			want: status.Progress{
				Ready: true, Counts: v1alpha1.UnitCounts{Total: 2, Failed: 1, Waiting: 1}, Failure: "a broke", Wait: v1alpha1.ReasonOutsideWindow,
				WaitMessage: "current time is not within configured window, it opens at 2026-11-20T22:00:00Z",
			},
			complete: "False JobFailed: a broke",
		},
		"not selected any more, and still running": {
			build: func(f *picture) { f.turning(newNode("a", without(corev1.LabelHostname)), asIs, isRunning) },
			want:  status.Progress{Ready: true, Counts: v1alpha1.UnitCounts{Total: 1, Updating: 1}}, complete: "False SyncJob",
		},
		"not ready": {
			build: func(f *picture) {
				f.Ready = false
				f.add(newNode("a"))
				f.turning(newNode("b"), asIs, isRunning)
				f.turning(newNode("c"), failedAt(time.Minute, "c broke"), failed)
			}, problem: errors.New("secrets \"s\" not found"),
			want:     status.Progress{Problem: "secrets \"s\" not found", Counts: v1alpha1.UnitCounts{Total: 2, Updating: 1, Failed: 1}, Failure: "c broke", Stuck: false},
			complete: "False NotReady: plan is not valid and resolved",
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newPicture(newPlan(tc.plan...))
			tc.build(f)
			got := f.report(tc.problem)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if f.Ready == (f.Plan.Status.Counts == nil) {
				t.Errorf("counts are %v", f.Plan.Status.Counts)
			}
			status.SetPlanProgress(f.Plan, got, now)
			if got := told(f.Plan, upgradev1.ConditionComplete); got != tc.complete {
				t.Errorf("Complete is %s, want %s", got, tc.complete)
			}
			// k3s-upgrade and rke2-upgrade wait until this list is empty.
			if complete := f.Plan.Status.Condition(upgradev1.ConditionComplete); complete.Status == metav1.ConditionTrue && len(f.Plan.Status.Applying) > 0 {
				t.Errorf("complete, and applying %v", f.Plan.Status.Applying)
			}
		})
	}
}

func TestTransitions(t *testing.T) {
	condition := func(kind string, s metav1.ConditionStatus, reason, message string) upgradev1.Condition {
		return upgradev1.Condition{Type: kind, Status: s, Reason: reason, Message: message}
	}
	with := func(all ...upgradev1.Condition) upgradev1.PlanStatus {
		return upgradev1.PlanStatus{Conditions: all, LatestVersion: latest, LatestHash: hash}
	}
	const (
		yes     = metav1.ConditionTrue
		no      = metav1.ConditionFalse
		unknown = metav1.ConditionUnknown
	)
	waiting := func(s upgradev1.PlanStatus, reasons ...v1alpha1.Reason) upgradev1.PlanStatus {
		for i, r := range reasons {
			s.Waiting = append(s.Waiting, v1alpha1.UnitStatus{Node: fmt.Sprintf("node-%d", i), Reason: r, Message: "why"})
		}
		return s
	}
	resolvedBefore := with(condition("LatestResolved", yes, "Version", ""))
	for name, tc := range map[string]struct {
		before, after upgradev1.PlanStatus
		problem       error
		want          []string // type, reason and message
	}{
		"nothing": {with(), with(), nil, nil},
		"a new Plan": {
			upgradev1.PlanStatus{},
			with(condition("Validated", yes, "PlanIsValid", ""), condition("LatestResolved", yes, "Version", ""), condition("Complete", no, "SyncJob", "")),
			nil,
			[]string{"Normal Validated: The plan is valid", "Normal Resolved: Resolved latest version to " + latest + ", hash " + hash},
		},
		"the same again": {
			with(condition("Validated", yes, "PlanIsValid", ""), condition("LatestResolved", yes, "Version", ""), condition("Complete", no, "Waiting", "x")),
			with(condition("Validated", yes, "PlanIsValid", ""), condition("LatestResolved", yes, "Version", ""), condition("Complete", no, "Waiting", "x")),
			nil, nil,
		},
		"not valid": {
			with(condition("Validated", yes, "PlanIsValid", "")), with(condition("Validated", no, "Error", "bad")), errors.New("bad"),
			[]string{"Warning ValidateFailed: The plan is not valid: bad"},
		},
		"not valid, otherwise": {
			with(condition("Validated", no, "Error", "bad")), with(condition("Validated", no, "Error", "worse")), errors.New("worse"),
			[]string{"Warning ValidateFailed: The plan is not valid: worse"},
		},
		"not valid, by its selector": {
			with(), with(condition("Validated", no, "Error", "bad")), notSelector(t),
			[]string{"Warning SelectNodesFailed: Nodes can't be selected: bad"},
		},
		"valid again": {
			with(condition("Validated", no, "Error", "bad")), with(condition("Validated", yes, "PlanIsValid", "")), nil,
			[]string{"Normal Validated: The plan is valid"},
		},
		"the channel is asked": {
			with(), with(condition("LatestResolved", unknown, "Channel", "the channel is being asked")), nil, nil,
		},
		"the channel does not answer": {
			with(condition("LatestResolved", unknown, "Channel", "the channel is being asked")), with(condition("LatestResolved", no, "Error", "404")), errors.New("404"),
			[]string{"Warning ResolveFailed: The version can't be resolved: 404"},
		},
		"the channel does not answer any more": {
			with(condition("LatestResolved", yes, "Channel", "")), with(condition("LatestResolved", yes, "Channel", "version v1 stays: 404")), nil,
			[]string{"Warning ResolveFailed: The version can't be resolved: version v1 stays: 404"},
		},
		"the channel answers again": {
			with(condition("LatestResolved", yes, "Channel", "version v1 stays: 404")), with(condition("LatestResolved", yes, "Channel", "")), nil, nil,
		},
		"another version": {
			func() upgradev1.PlanStatus { s := resolvedBefore; s.LatestVersion = "v0"; return s }(), resolvedBefore, nil,
			[]string{"Normal Resolved: Resolved latest version to " + latest + ", hash " + hash},
		},
		"another hash": {
			func() upgradev1.PlanStatus { s := resolvedBefore; s.LatestHash = oldHash; return s }(), resolvedBefore, nil,
			[]string{"Normal Resolved: Resolved latest version to " + latest + ", hash " + hash},
		},
		"it is rolled back": {
			resolvedBefore, func() upgradev1.PlanStatus {
				s := resolvedBefore
				s.LastComplete, s.RolledBack = &upgradev1.PlanRevision{Version: "v1"}, &upgradev1.PlanRevision{Version: "v2"}
				return s
			}(), nil,
			[]string{"Warning RolledBack: Nodes are brought back to version v1: more turns have failed with v2 than the strategy allows"},
		},
		"it can't be rolled back": {
			with(condition("Stalled", no, "SyncJob", "")),
			with(condition("Stalled", yes, "JobFailed", "halted: 1 node failed; it can't be rolled back: why")), nil,
			[]string{
				"Warning Halted: No more nodes are started: 1 node failed; it can't be rolled back: why",
			},
		},
		"it waits": {
			with(condition("Complete", no, "SyncJob", "")), with(condition("Complete", no, "Waiting", "closed")), nil,
			[]string{"Normal Waiting: No node is started: closed"},
		},
		"it waits for something else": {
			with(condition("Complete", no, "Waiting", "closed")), with(condition("Complete", no, "Waiting", "claimed")), nil,
			[]string{"Normal Waiting: No node is started: claimed"},
		},
		"it goes on": {
			with(condition("Complete", no, "Waiting", "closed")), with(condition("Complete", no, "SyncJob", "")), nil, nil,
		},
		"a node has failed, which is told by itself": {
			with(condition("Complete", no, "SyncJob", "")), with(condition("Complete", no, "JobFailed", "it broke")), nil, nil,
		},
		"complete": {
			with(condition("Complete", no, "SyncJob", "")), with(condition("Complete", yes, "Complete", "")), nil,
			[]string{"Normal Complete: All selected nodes have version " + latest + ", hash " + hash},
		},
		"a Windows node": {
			waiting(with(), v1alpha1.ReasonMaxConcurrent), waiting(with(), v1alpha1.ReasonMaxConcurrent, v1alpha1.ReasonWindowsImageMissing, v1alpha1.ReasonWindowsImageMissing), nil,
			[]string{"Warning ValidationFailed: Node node-1: why"},
		},
		"a Windows node, again": {
			waiting(with(), v1alpha1.ReasonWindowsImageMissing), waiting(with(), v1alpha1.ReasonMaxConcurrent, v1alpha1.ReasonWindowsImageMissing), nil, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlan()
			p.Status = tc.after
			var got []string
			for _, e := range transitions(&tc.before, p, tc.problem) {
				got = append(got, e.Type+" "+e.Reason+": "+e.Message)
				if e.Object != any(p) {
					t.Errorf("%s is about %v", e.Reason, e.Object)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// notSelector is why a Plan with a bad node selector is not valid.
func notSelector(t *testing.T) error {
	t.Helper()
	_, err := parse(newPlan(func(p *upgradev1.Plan) { p.Spec.NodeSelector = selects("Gt", "1") }), secretsBut())
	return err
}
