// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/api/v1alpha1"
)

// soaking is a world in which a canary of ten minutes has soaked for eleven, as was written down.
func soaking() *world {
	w := newWorld(3).trying()
	w.eds.Status.Wave = &v1alpha1.WaveStatus{
		Name: WaveCanary, Number: 1, Revision: w.sets[1].Spec.TemplateGeneration, State: v1alpha1.WaveSoaking, Since: ago(11 * time.Minute),
	}
	w.sets[1].Status.Conditions = []edsv1.Condition{{Type: edsv1.ConditionCanary, Status: metav1.ConditionTrue, LastTransitionTime: ago(time.Hour)}}
	return w
}

// A canary passes when there is a pod, and all pods have been well for its duration; the time alone is not enough.
func TestOver(t *testing.T) {
	readyFor := func(d time.Duration) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Status.Conditions[0].LastTransitionTime = ago(d) }
	}
	restarted := func(d time.Duration) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			s := &p.Status.ContainerStatuses[0]
			s.RestartCount, s.State.Running.StartedAt = 1, ago(d)
			s.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{Reason: "Error", FinishedAt: ago(d)}
		}
	}
	for name, tc := range map[string]struct {
		world *world
		want  bool
	}{
		"its pod has been ready for so long":       {soaking().has("new", nil, 0), true},
		"there is no pod":                          {soaking(), false},
		"the old one is still there":               {soaking().has("old", nil, 0), false},
		"its pod is not ready":                     {soaking().has("new", unready, 0), false},
		"its pod is ready since a moment ago":      {soaking().has("new", readyFor(9*time.Minute), 0), false},
		"its pod has restarted of late":            {soaking().has("new", restarted(4*time.Minute), 0), false},
		"its pod has restarted a while ago":        {soaking().has("new", restarted(6*time.Minute), 0), true},
		"its pod is going":                         {soaking().has("new", going, 0), false},
		"its node is not ready":                    {soaking().has("new", nil, 0).down(0), false},
		"one of two pods is not there":             {soaking().on("n0", "n1").has("new", nil, 0), false},
		"both are there":                           {soaking().on("n0", "n1").has("new", nil, 0, 1), true},
		"it has no node":                           {soaking().on(), false},
		"its node is gone":                         {soaking().on("gone"), false},
		"a pod of it on another node does not say": {soaking().has("new", nil, 1), false},
	} {
		t.Run(name, func(t *testing.T) {
			p := tc.world.lookCanary(t)
			p.JudgeCanaryPods()
			p.DecideCanary()
			if got := p.Canary.Over; got != tc.want {
				t.Errorf("over is %t: %+v", got, p.Canary.Decision.Wave)
			}
		})
	}
	p := soaking().has("new", nil, 0).lookCanary(t)
	p.JudgeCanaryPods()
	p.Canary.PausedByHand = true
	p.DecideCanary()
	if p.Canary.Over {
		t.Error("it is over while it is paused")
	}
}

// A canary that has soaked and is held stays in its wave. So it is asked again for all that ends the wave, such as an approval that it needs by then.
func TestHeldCanaryStaysInItsWave(t *testing.T) {
	for name, hold := range map[string]func(*world){
		"by a pause": func(w *world) { w.eds.Annotations = map[string]string{edsv1.AnnotationCanaryPaused: edsv1.True} },
		"by a restart": func(w *world) {
			s := &w.pods[0].Status.ContainerStatuses[0]
			s.RestartCount, s.State.Running.StartedAt = 1, ago(4*time.Minute)
			s.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{FinishedAt: ago(4 * time.Minute)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := soaking().has("new", nil, 0).has("old", nil, 1, 2)
			decide := func() *Judge {
				j := w.begin(t)
				j.StartCanary()
				j.JudgeCanaryPods()
				j.DecideCanary()
				w.eds.Status.Wave = j.EDS.Status.Wave
				return j
			}
			before := w.eds.Status.Wave.Since
			hold(w)
			j := decide()
			if got := j.EDS.Status.Wave; j.Canary.Over || got.Number != 1 || got.State != v1alpha1.WaveSoaking || !got.Since.Equal(&before) || got.Nodes != 1 {
				t.Fatalf("over %t, wave %+v", j.Canary.Over, got)
			}
			reason, message := j.CanaryCheck()
			if got := j.Canary.Decision.Waiting; len(got) != 2 || got[0].Reason != reason || got[1].Reason != reason || got[1].Message != message {
				t.Errorf("nodes wait for %+v", got)
			}
			canary := &w.eds.Spec.Strategy.Canary
			(*canary).ValidationMode, (*canary).Duration, (*canary).NoRestartsDuration = edsv1.ValidationModeManual, nil, nil
			w.eds.Annotations = nil
			if j := decide(); j.Canary.Over || j.EDS.Status.Wave.State != v1alpha1.WaveWaitingForApproval {
				t.Errorf("it needs an approval: over %t, wave %+v", j.Canary.Over, j.EDS.Status.Wave)
			}
		})
	}
}

// on lets the canary run on these nodes.
func (w *world) on(nodes ...string) *world {
	w.eds.Status.Canary.Nodes = nodes
	return w
}

// Where no node can have the canary, that is what everything waits for.
func TestTrialWithoutANode(t *testing.T) {
	p := soaking().on().has("old", nil, 0, 1, 2).lookCanary(t)
	p.DecideCanary()
	const want = "wave 1 (canary) has no node; the rollout starts when this canary has one"
	if got := p.Canary.Decision.Wave.Message; got != want || p.Canary.Over {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A canary runs on nodes that spec.selector selects.
func TestCandidatesAreSelected(t *testing.T) {
	w := newWorld(3).trying().on()
	w.eds.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelHostname: "n1"}}
	j := w.lookCanary(t)
	nodes, desired := j.States, j.total().Desired
	if desired != 1 || len(nodes) != 1 || nodes[0].Node.Name != "n1" {
		t.Errorf("%d desired, of %+v", desired, nodes)
	}
}

// A paused canary leaves the old pods, and makes no new ones.
func TestPausedCanaryLeavesPods(t *testing.T) {
	for name, tc := range map[string]struct {
		world *world
		want  string
	}{
		"an old pod stays":        {newWorld(2).trying().has("old", nil, 0, 1), ""},
		"a missing one is missed": {newWorld(2).trying().has("old", nil, 1), ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := tc.world.begin(t)
			p.Canary = &Canary{Wanted: 1, PausedByHand: true}
			p.Decide()
			if got := p.show(); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// A canary that autoPause has paused for restarts stays paused when the pod goes, or its node is claimed, and its history is halted.
func TestCanaryStaysPaused(t *testing.T) {
	paused := func(message string, since time.Duration) *world {
		w := soaking().has("new", nil, 0)
		w.sets[1].Status.Conditions = append(w.sets[1].Status.Conditions, edsv1.Condition{
			Type: edsv1.ConditionCanaryPaused, Status: metav1.ConditionTrue, Reason: "OOMKilled", Message: message, LastTransitionTime: ago(since),
		})
		return w
	}
	const restarts = "pod on node n0: container c has restarted 3 times, and 2 are allowed"
	unpaused := paused(restarts, time.Minute)
	unpaused.eds.Annotations = map[string]string{edsv1.AnnotationCanaryUnpaused: edsv1.True}
	for name, tc := range map[string]struct {
		world *world
		want  bool
	}{
		"for restarts":                        {paused(restarts, time.Minute), true},
		"for a pod that has started since":    {paused("Pod foo-1 cannot start", time.Minute), false},
		"by hand, and not any more":           {paused("", time.Minute), false},
		"in another canary":                   {paused(restarts, 2*time.Hour), false},
		"for restarts that are allowed now":   {paused("pod on node n0: container c has restarted 3 times, and 1 are allowed", time.Minute), false},
		"for restarts, and a person unpauses": {unpaused, false},
	} {
		p := tc.world.lookCanary(t)
		p.JudgeCanaryPods()
		if v := p.Canary.Verdict; v.Paused != tc.want || v.Paused && v.Reason != "OOMKilled" {
			t.Errorf("%s: %+v", name, v)
		}
		p.DecideCanary()
		p.Decide()
		if runs := p.History(nil); p.Canary.Over == tc.want || len(runs) != 1 || (runs[0].HaltedAt != nil) != tc.want {
			t.Errorf("%s: over %t, history %+v", name, p.Canary.Over, runs)
		}
	}
}

// The canary's label comes and goes with the canary, however long ago that was.
func TestRelabel(t *testing.T) {
	labelled := func(p *corev1.Pod) { p.Labels[edsv1.LabelReplicaSetCanary] = edsv1.True }
	// names are the nodes of pods that get the label, and of those that lose it.
	names := func(pods []*corev1.Pod) (on, off []string) {
		for _, pod := range pods {
			if IsLabelledCanary(pod) {
				off = append(off, pod.Spec.NodeName)
			} else {
				on = append(on, pod.Spec.NodeName)
			}
		}
		return on, off
	}
	p := newWorld(3).has("new", labelled, 0, 2).has("new", nil, 1).look(t)
	if on, off := names(p.Actions.Relabel); !slices.Equal(off, []string{"n0", "n2"}) || len(on) > 0 {
		t.Errorf("after the canary labels come on %v and go on %v", on, off)
	}
	p = newWorld(3).trying().has("new", nil, 0).has("old", labelled, 1).has("old", nil, 2).lookCanary(t)
	if on, off := names(p.Actions.Relabel); !slices.Equal(on, []string{"n0"}) || !slices.Equal(off, []string{"n1"}) {
		t.Errorf("during the canary labels come on %v and go on %v", on, off)
	}
}
