// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/api/v1alpha1"
)

// What a DaemonSet keeps on nodes that the ExtendedDaemonSet does not select is none of its business.
func TestCountBesideALargerDaemonSet(t *testing.T) {
	world := func() *world {
		w := newWorld(10).has("old", nil, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9).keeps()
		w.eds.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "a"}}
		for _, n := range w.nodes[:2] {
			n.Labels["pool"] = "a"
		}
		w.eds.Spec.Strategy.RollingUpdate.MaxUnavailable = ptr.To(intstr.FromString("50%"))
		return w
	}
	p := world().look(t)
	p.Summarize("", nil)
	if got, want := p.show(), "create n0; MaxConcurrent n1"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if s := &p.EDS.Status; s.Desired != 2 || len(s.Waiting) != 1 || p.Counts["foo-new"].Desired != 2 {
		t.Errorf("%d are desired, of the revision %d, and %d wait", s.Desired, p.Counts["foo-new"].Desired, len(s.Waiting))
	}
	p = world().has("new", nil, 0, 1).look(t)
	p.Summarize("", nil)
	if s := &p.EDS.Status; !edsv1.IsConditionTrue(s.Conditions, edsv1.ConditionReady) {
		t.Errorf("with all its pods it is not ready: %+v", s)
	}
	p = world().trying().lookCanary(t)
	if desired := p.total().Desired; desired != 2 {
		t.Errorf("the canary is of %d nodes", desired)
	}
	p.DecideCanary()
	if len(p.Canary.Units) != 2 {
		t.Errorf("it is to come to %d nodes", len(p.Canary.Units))
	}
}

// A node that may not get the new pod keeps the old one, and does not count.
func TestStatusOfAMisplacedPod(t *testing.T) {
	w := newWorld(3).has("new", nil, 0, 1).has("old", nil, 2)
	w.nodes[2].Spec.Taints = []corev1.Taint{{Key: "dedicated", Effect: corev1.TaintEffectNoSchedule}}
	p := w.look(t)
	p.Summarize("", nil)
	s := &p.EDS.Status
	if !edsv1.IsConditionTrue(s.Conditions, edsv1.ConditionReady) || s.Desired != 2 || s.Current != 2 || s.UpToDate != 2 {
		t.Errorf("%+v", s)
	}
	if len(s.Waiting) != 1 || s.Waiting[0].Reason != v1alpha1.ReasonNodeUnfit {
		t.Errorf("waiting are %+v", s.Waiting)
	}
}

// The counts of the status are those of ExtendedDaemonSet: of nodes, of their pods, and of those pods that are ready or have the template.
func TestStatusCounts(t *testing.T) {
	w := newWorld(6).has("new", nil, 0).has("new", unready, 1).has("old", nil, 2).has("old", unscheduled, 3, 4)
	w.eds.Spec.Strategy.RollingUpdate.MaxPodSchedulerFailure = ptr.To(intstr.FromInt32(1))
	p := w.look(t)
	p.Summarize("", nil)
	s := &p.EDS.Status
	if got, want := [6]int32{s.Desired, s.Current, s.Ready, s.Available, s.UpToDate, s.IgnoredUnresponsiveNodes}, [6]int32{6, 5, 2, 2, 2, 2}; got != want {
		t.Errorf("desired, current, ready, available, up to date and ignored are %v, want %v", got, want)
	}
	if s.State != edsv1.StateRunning || s.ActiveReplicaSet != "foo-new" {
		t.Errorf("the state is %q, the active revision %s", s.State, s.ActiveReplicaSet)
	}
	if active := p.ReplicaSetStatus(p.Find("foo-new")); active.Status != edsv1.ReplicaSetActive || active.Desired != 6 || active.Current != 2 || active.Ready != 1 {
		t.Errorf("the active revision says %+v", active)
	}
	if old := p.ReplicaSetStatus(p.Find("foo-old")); old.Status != edsv1.ReplicaSetUnknown || old.Current != 3 {
		t.Errorf("the old revision says %+v", old)
	}
	p = newWorld(3).trying().has("new", nil, 0).lookCanary(t)
	if tried := p.ReplicaSetStatus(p.Find("foo-new")); tried.Status != edsv1.ReplicaSetCanary || tried.Desired != 1 || tried.Current != 1 {
		t.Errorf("the canary's revision says %+v", tried)
	}
}

// A revision that is active has not failed, whatever was written of it in the moment in which it passed.
func TestActiveRevisionHasNotFailed(t *testing.T) {
	w := newWorld(1).has("new", nil, 0)
	w.failed("foo-new")
	p := w.look(t)
	if s := p.ReplicaSetStatus(p.Find("foo-new")); edsv1.IsConditionTrue(s.Conditions, edsv1.ConditionCanaryFailed) {
		t.Errorf("it has failed: %+v", s.Conditions)
	}
	w.eds.Status.ActiveReplicaSet = "foo-old"
	p = w.look(t)
	if s := p.ReplicaSetStatus(p.Find("foo-new")); !edsv1.IsConditionTrue(s.Conditions, edsv1.ConditionCanaryFailed) || s.Status != edsv1.ReplicaSetCanaryFailed {
		t.Errorf("one that is not active has not failed: %+v", s)
	}
}

// The state is Canary Failed until the pods of the canary are gone, and Running from then on: clients wait for that.
func TestStateAfterAFailedCanary(t *testing.T) {
	lost := func() *world {
		w := newWorld(4).trying()
		w.failed("foo-new")
		w.eds.Status.Canary = nil
		w.eds.Status.State = edsv1.StateCanaryFailed
		w.eds.Status.Conditions = []edsv1.Condition{{Type: edsv1.ConditionCanaryFailed, Status: metav1.ConditionTrue, LastTransitionTime: ago(time.Minute)}}
		return w
	}
	running := func() *world {
		w := lost()
		w.eds.Status.State = edsv1.StateRunning
		return w
	}
	for name, tc := range map[string]struct {
		world *world
		want  edsv1.State
	}{
		"it has a pod":     {lost().has("new", nil, 0).has("old", nil, 1, 2, 3), edsv1.StateCanaryFailed},
		"its pod is going": {lost().has("new", going, 0).has("old", nil, 1, 2, 3), edsv1.StateCanaryFailed},
		"it has none":      {lost().has("old", nil, 0, 1, 2, 3), edsv1.StateRunning},
		"it has none, and another pod does not get ready": {lost().has("old", nil, 0, 1, 2).has("old", unready, 3), edsv1.StateRunning},
		"it had none, and a node has come":                {running().has("old", nil, 0, 1, 2), edsv1.StateRunning},
	} {
		t.Run(name, func(t *testing.T) {
			p := tc.world.look(t)
			p.Summarize("", nil)
			s := &p.EDS.Status
			if s.State != tc.want || !edsv1.IsConditionTrue(s.Conditions, edsv1.ConditionCanaryFailed) {
				t.Errorf("the state is %q, want %q: %+v", s.State, tc.want, s.Conditions)
			}
		})
	}
}

// What a revision's pods were short of is over with its part, and is not written again and again.
func TestConditionsEndWithTheirPart(t *testing.T) {
	kinds := []string{edsv1.ConditionPodCannotStart, edsv1.ConditionUnschedule, edsv1.ConditionReconcileError}
	for name, tc := range map[string]struct {
		world    *world
		revision int
	}{
		"validated, and active": {newWorld(1).has("new", nil, 0), 1},
		"not active any more":   {newWorld(1).has("new", nil, 0), 0},
		"with a pod still":      {newWorld(1).has("old", unscheduled, 0), 0},
	} {
		t.Run(name, func(t *testing.T) {
			rs := tc.world.sets[tc.revision]
			p := tc.world.look(t)
			for _, kind := range kinds {
				if c := edsv1.FindCondition(p.ReplicaSetStatus(p.Find(rs.Name)).Conditions, kind); c != nil {
					t.Errorf("it never was, and is told of: %+v", c)
				}
			}
			for _, kind := range kinds {
				rs.Status.Conditions = append(rs.Status.Conditions, edsv1.Condition{
					Type: kind, Status: metav1.ConditionTrue, Reason: "Reason", Message: "why", LastTransitionTime: ago(time.Hour), LastUpdateTime: ago(time.Hour),
				})
			}
			p = tc.world.look(t)
			first := p.ReplicaSetStatus(p.Find(rs.Name))
			for _, kind := range kinds {
				c := edsv1.FindCondition(first.Conditions, kind)
				if c.Status != metav1.ConditionFalse || c.Reason != "" || c.Message != "" || !c.LastTransitionTime.Time.Equal(now) {
					t.Errorf("it is not over: %+v", c)
				}
			}
			rs.Status = first
			p = tc.world.look(t)
			p.Now = now.Add(time.Minute)
			if again := p.ReplicaSetStatus(p.Find(rs.Name)); !equality.Semantic.DeepEqual(again, first) {
				t.Errorf("it is written again: %+v, was %+v", again.Conditions, first.Conditions)
			}
		})
	}
}
