// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/api/v1alpha1"
)

// trying lets a canary of the new revision run on the first node, while the old one is active.
func (w *world) trying() *world {
	w.eds.Spec.Strategy.Canary = &edsv1.ExtendedDaemonSetSpecStrategyCanary{}
	w.eds.Status.ActiveReplicaSet = "foo-old"
	w.eds.Status.Canary = &edsv1.ExtendedDaemonSetStatusCanary{ReplicaSet: "foo-new", Nodes: []string{"n0"}}
	return w
}

// lookCanary makes a pass over the world in which a canary goes on, up to what it decides.
func (w *world) lookCanary(t *testing.T) *Judge {
	t.Helper()
	j := w.begin(t)
	j.Canary = &Canary{Wanted: 1}
	j.Decide()
	return j
}

// halfway has a canary of the new revision in the middle of the rolling update from it to the old one, which a person takes back.
func halfway() *world {
	w := newWorld(4).trying()
	w.sets[1].Status.Conditions[0].Status = metav1.ConditionFalse // It was active once.
	return w
}

// overridden is a pod that was made with other resources than its node's are now.
func overridden(p *corev1.Pod) { p.Annotations[edsv1.AnnotationOverrides] = "other" }

func TestDecideOnCanary(t *testing.T) {
	surge := func(w *world) *world {
		w.eds.Spec.Strategy.RollingUpdate.MaxUnavailable, w.eds.Spec.Strategy.RollingUpdate.MaxSurge = nil, ptr.To(intstr.FromInt32(1))
		return w
	}
	port := func(w *world) *world {
		for _, rs := range w.sets {
			rs.Spec.Template.Spec.Containers[0].Ports = []corev1.ContainerPort{{HostPort: 80}}
		}
		return w
	}
	busy := func(w *world) *world {
		w.nodes[0].Annotations[v1alpha1.AnnotationClaims] = `[{"rollout":"Plan/a/b","uid":"u","revision":"r","turn":"t","since":"2026-03-04T11:00:00Z"}]`
		return w
	}
	three := func(w *world) *world {
		w.eds.Status.Canary.Nodes = []string{"n0", "n1", "n2"}
		return w
	}
	frozen := func(w *world) *world {
		w.eds.Annotations = map[string]string{edsv1.AnnotationRolloutFrozen: edsv1.True}
		return w
	}
	for name, tc := range map[string]struct {
		world func() *world
		want  string
	}{
		"while the rollout is frozen it goes on":         {func() *world { return frozen(newWorld(3).trying().has("old", nil, 0, 1)) }, "replace n0/old"},
		"an outdated pod goes at once":                   {func() *world { return newWorld(3).trying().has("old", nil, 0, 1, 2) }, "replace n0/old"},
		"a new one is made at once":                      {func() *world { return newWorld(3).trying().has("old", nil, 1, 2) }, "create n0"},
		"with surge it is made beside the old one":       {func() *world { return surge(newWorld(3).trying().has("old", nil, 0, 1, 2)) }, "create n0"},
		"which stays while the new one starts":           {func() *world { return surge(newWorld(3).trying().has("old", nil, 0, 1, 2).has("new", starting, 0)) }, ""},
		"and goes then":                                  {func() *world { return surge(newWorld(3).trying().has("old", nil, 0, 1, 2).has("new", nil, 0)) }, "done n0/old"},
		"where both want the same port it goes now":      {func() *world { return port(surge(newWorld(3).trying())).has("old", nil, 0, 1, 2) }, "replace n0/old"},
		"only one goes before the first new pod is made": {func() *world { return three(newWorld(4).trying().has("old", nil, 0, 1, 2, 3)) }, "replace n0/old"},
		"and none while the API server refuses that":     {func() *world { return three(newWorld(4).trying().has("old", nil, 1, 2, 3)) }, "create n0"},
		"then all": {func() *world { return three(newWorld(4).trying().has("new", starting, 0).has("old", nil, 1, 2, 3)) }, "replace n1/old,n2/old"},
		"on a node that another rollout has an old pod stays": {func() *world { return busy(newWorld(3).trying().has("old", nil, 0, 1, 2)) }, ""},
		"with surge too":                                                {func() *world { return busy(surge(newWorld(3).trying().has("old", nil, 0, 1, 2))) }, ""},
		"and where a DaemonSet keeps it":                                {func() *world { return busy(newWorld(3).trying().has("old", nil, 0).keeps().has("old", nil, 1, 2)) }, ""},
		"one that is missing is made":                                   {func() *world { return busy(newWorld(3).trying().has("old", nil, 1, 2)) }, "create n0"},
		"what surge has made beside it replaces it":                     {func() *world { return busy(surge(newWorld(3).trying().has("old", nil, 0, 1, 2).has("new", nil, 0))) }, "done n0/old"},
		"on a node that is not ready an old pod stays":                  {func() *world { return newWorld(3).trying().has("old", nil, 0, 1, 2).down(0) }, ""},
		"what the active revision has not come to, it does not come to": {func() *world { return halfway().has("new", nil, 0, 1, 2).has("old", nil, 3) }, "WavePending n1,n2"},
		"also where the pod is no one's":                                {func() *world { return halfway().has("new", nil, 0).has("old", nil, 2, 3).has("old", orphan, 1) }, "WavePending n1"},
		"but a node without a pod gets one":                             {func() *world { return halfway().has("new", nil, 0, 2).has("old", nil, 3) }, "create n1; WavePending n2"},
		"a pod of the active revision gets its node's other resources":  {func() *world { return halfway().has("new", nil, 0).has("old", overridden, 1, 2, 3) }, "replace n2/old,n3/old; MaxConcurrent n1"},
		"but not before the canary's pod is replaced":                   {func() *world { return newWorld(4).trying().has("old", overridden, 0, 1, 2, 3) }, "replace n0/old; MaxConcurrent n1; SlowStart n2,n3"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.world().lookCanary(t).show(); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// A node that is not ready is tainted, and a taint may linger: neither moves a canary that runs there.
func TestFindFits(t *testing.T) {
	taint := func(w *world) *world {
		w.nodes[0].Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}}
		return w
	}
	since := func(w *world, d time.Duration) *world {
		w.nodes[0].Status.Conditions[0].LastTransitionTime = ago(d)
		return w
	}
	claimed := func(w *world, how string) *world {
		w.nodes[0].Annotations[v1alpha1.AnnotationClaims] = `[{"rollout":"Plan/a/b","uid":"u","revision":"r","turn":"t","since":"2026-03-04T11:00:00Z"` + how + `}]`
		return w
	}
	const hasFailed = `,"failed":{"reason":"JobFailed","time":"2026-03-04T11:30:00Z"}`
	elsewhere := func(w *world) *world {
		w.eds.Status.Canary.Nodes = []string{"n1"}
		return w
	}
	maintained := func(w *world) *world {
		w.nodes[0].Status.Conditions = append(w.nodes[0].Status.Conditions, corev1.NodeCondition{Type: corev1.NodeMaintenanceInProgress, Status: corev1.ConditionTrue})
		return w
	}
	for name, tc := range map[string]struct {
		world *world
		fits  bool
	}{
		"a ready node fits":                           {newWorld(2).trying(), true},
		"the canary's, when it has just gone":         {taint(since(newWorld(2).trying().down(0), 30*time.Second)), true},
		"but not when it stays away":                  {taint(newWorld(2).trying().down(0)), false},
		"unless its pod may have broken it":           {taint(newWorld(2).trying().breaks(0).has("new", unready, 0)), true},
		"but not where it was ready for long":         {taint(newWorld(2).trying().breaks(0).has("new", unreadyLater, 0)), false},
		"nor where a rollout has claimed it":          {claimed(taint(newWorld(2).trying().breaks(0).has("new", unready, 0)), hasFailed), false},
		"unless a rollout is at work there":           {claimed(taint(newWorld(2).trying().down(0)), ""), true},
		"but not one whose turn has failed":           {claimed(taint(newWorld(2).trying().down(0)), hasFailed), false},
		"which is waited for a moment":                {claimed(taint(since(newWorld(2).trying().down(0), 30*time.Second)), hasFailed), true},
		"and stays when it is ready":                  {claimed(newWorld(2).trying(), hasFailed), true},
		"the canary's, with its pod":                  {taint(newWorld(2).trying().has("new", nil, 0)), true},
		"not one that is tainted before it has a pod": {taint(newWorld(2).trying()), false},
		"nor another one that a person works on":      {elsewhere(maintained(newWorld(2).trying())), false},
		"but the canary's stays meanwhile":            {maintained(newWorld(2).trying()), true},
		"nor another one that is not ready":           {elsewhere(taint(newWorld(2).trying().down(0))), false},
	} {
		t.Run(name, func(t *testing.T) {
			j := tc.world.lookCanary(t)
			j.findFits()
			nodes := j.States
			if nodes[0].Node.Name != "n0" || nodes[0].Fits != tc.fits {
				t.Errorf("%s fits: %v", nodes[0].Node.Name, nodes[0].Fits)
			}
		})
	}
}

// The time that a node keeps the canary waiting is not the canary's.
// soaksSince makes the canary soak for duration, since so long ago.
func (w *world) soaksSince(duration, since time.Duration) {
	w.eds.Spec.Strategy.Canary.Duration = &metav1.Duration{Duration: duration}
	w.eds.Status.Wave = &v1alpha1.WaveStatus{State: v1alpha1.WaveSoaking, Since: ago(since)}
}

func TestCanaryTimeout(t *testing.T) {
	for name, tc := range map[string]struct {
		how  func(*world)
		want bool
	}{
		"it fails when it takes too long":            {func(*world) {}, true},
		"not while its node is not ready":            {func(w *world) { w.down(0) }, false},
		"nor at once when the node is back":          {func(w *world) { w.nodes[0].Status.Conditions[0].LastTransitionTime = ago(time.Minute) }, false},
		"but when it takes too long from then on":    {func(w *world) { w.nodes[0].Status.Conditions[0].LastTransitionTime = ago(25 * time.Minute) }, true},
		"another node than the canary's is no cause": {func(w *world) { w.down(1) }, true},
		"not while it soaks":                         {func(w *world) { w.soaksSince(10*time.Minute, 9*time.Minute) }, false},
		"but when it has soaked":                     {func(w *world) { w.soaksSince(10*time.Minute, 11*time.Minute) }, true},
		"not in the pass that promotes it": {func(w *world) {
			w.pods = nil
			w.has("new", nil, 0).soaksSince(10*time.Minute, 11*time.Minute)
		}, false},
		"but while autoPause holds it": {func(w *world) {
			w.pods = nil
			w.has("new", nil, 0).soaksSince(10*time.Minute, 11*time.Minute)
			w.sets[1].Status.Conditions = append(w.sets[1].Status.Conditions, edsv1.Condition{
				Type: edsv1.ConditionCanaryPaused, Status: metav1.ConditionTrue, Reason: "Error", Message: restarting + "n0: x" + allowed(2), LastTransitionTime: ago(time.Minute),
			})
		}, true},
		"but while a restart holds it": {func(w *world) {
			w.pods = nil
			w.has("new", nil, 0).soaksSince(10*time.Minute, 11*time.Minute)
			w.sets[1].Status.Conditions = append(w.sets[1].Status.Conditions, edsv1.Condition{
				Type: edsv1.ConditionPodRestarting, Status: metav1.ConditionTrue, LastTransitionTime: ago(time.Minute), LastUpdateTime: ago(time.Minute),
			})
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(2).trying().has("new", unready, 0).has("old", nil, 1)
			w.eds.Spec.Strategy.Canary.AutoFail = &edsv1.ExtendedDaemonSetSpecStrategyCanaryAutoFail{CanaryTimeout: &metav1.Duration{Duration: 20 * time.Minute}}
			w.sets[1].Status.Conditions = []edsv1.Condition{{Type: edsv1.ConditionCanary, Status: metav1.ConditionTrue, LastTransitionTime: ago(time.Hour)}}
			tc.how(w)
			p := w.lookCanary(t)
			p.JudgeCanaryPods()
			if p.Canary.Verdict.Failed != tc.want {
				t.Errorf("failed is %v: %+v", p.Canary.Verdict.Failed, p.Canary.Verdict)
			}
		})
	}
}

// A canary that has failed does not go on, and is not promoted by the time that passes.
func TestFailedCanaryDoesNotGoOn(t *testing.T) {
	w := soaking().has("new", nil, 0)
	if j := w.begin(t); !j.CanaryWanted() {
		t.Fatal("a canary that has not failed does not go on")
	}
	w.sets[1].Status.Conditions = append(w.sets[1].Status.Conditions, edsv1.Condition{Type: edsv1.ConditionCanaryFailed, Status: metav1.ConditionTrue})
	if j := w.begin(t); j.CanaryWanted() || !j.CanaryFailed() {
		t.Error("a canary that has failed goes on")
	}
}
