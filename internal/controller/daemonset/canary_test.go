// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"maps"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fakeclientset "k8s.io/client-go/kubernetes/fake"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/events"
	"moult.dev/moult/internal/kind/daemonset"
	"moult.dev/moult/internal/rollout"
)

// trying lets a canary of the new revision run on the first node, while the old one is active.
func (w *world) trying() *world {
	w.eds.Spec.Strategy.Canary = &edsv1.ExtendedDaemonSetSpecStrategyCanary{}
	w.eds.Status.ActiveReplicaSet = "foo-old"
	w.eds.Status.Canary = &edsv1.ExtendedDaemonSetStatusCanary{ReplicaSet: "foo-new", Nodes: []string{"n0"}}
	return w
}

// What people have set for one canary is not taken for the next, which begins in the middle of it; but who has paused it has it paused.
func TestNextCanaryBeginsAnew(t *testing.T) {
	approved := func(w *world, set int) string {
		return rollout.ApprovalOf(daemonset.WaveCanary, w.sets[set].Spec.TemplateGeneration, "")
	}
	for name, tc := range map[string]struct {
		set, want func(*world) map[string]string
	}{
		"autoPause was overruled": {
			set: func(*world) map[string]string {
				return map[string]string{edsv1.AnnotationCanaryPaused: "false", edsv1.AnnotationCanaryUnpaused: "true", "mine": "stays"}
			},
			want: func(*world) map[string]string { return map[string]string{"mine": "stays"} },
		},
		"it was paused by hand": {
			set: func(*world) map[string]string {
				return map[string]string{edsv1.AnnotationCanaryPaused: "true", edsv1.AnnotationCanaryUnpaused: "false", edsv1.AnnotationCanaryPausedReason: "mine"}
			},
			want: func(*world) map[string]string {
				return map[string]string{edsv1.AnnotationCanaryPaused: "true", edsv1.AnnotationCanaryPausedReason: "mine"}
			},
		},
		"it was validated and approved": {
			set: func(w *world) map[string]string {
				return map[string]string{edsv1.AnnotationCanaryValid: "foo-before", v1alpha1.AnnotationApprove: approved(w, 2)}
			},
			want: func(*world) map[string]string { return nil },
		},
		"the next one was": {
			set: func(w *world) map[string]string {
				return map[string]string{edsv1.AnnotationCanaryValid: "foo-new", v1alpha1.AnnotationApprove: approved(w, 1)}
			},
			want: func(w *world) map[string]string {
				return map[string]string{edsv1.AnnotationCanaryValid: "foo-new", v1alpha1.AnnotationApprove: approved(w, 1)}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(2).trying().has("old", nil, 0, 1)
			before := w.sets[1].DeepCopy()
			before.Name, before.UID, before.Spec.TemplateGeneration = "foo-before", "before", "before"
			w.sets = append(w.sets, before)
			w.eds.Status.Canary.ReplicaSet = before.Name
			w.eds.Annotations = tc.set(w)
			w.eds.Status.Approval = &v1alpha1.WaveApproval{Of: approved(w, 2), By: "jane"}
			p := w.begin(t, w.serve(t))
			if again, err := p.runCanary(t.Context()); !again || err != nil {
				t.Fatalf("the canary does not begin: %v", err)
			}
			got := &edsv1.ExtendedDaemonSet{}
			if err := p.client.Get(t.Context(), p.key, got); err != nil {
				t.Fatal(err)
			}
			if c := got.Status.Canary; c == nil || c.ReplicaSet != "foo-new" || got.Status.Approval != nil {
				t.Errorf("the canary is %+v, approved by %+v", c, got.Status.Approval)
			}
			if want := tc.want(w); !maps.Equal(got.Annotations, want) {
				t.Errorf("got %v, want %v", got.Annotations, want)
			}
		})
	}
}

// What restarts while another rollout has the node, or goes down with it, does not fail the canary. What restarts later does.
func TestRestartsUnderAClaim(t *testing.T) {
	restarted := func(n int32, d time.Duration) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			s := &p.Status.ContainerStatuses[0]
			s.RestartCount, s.State.Running.StartedAt = n, ago(d)
			s.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{Reason: "Error", FinishedAt: ago(d)}
		}
	}
	w := newWorld(2).trying().has("new", restarted(3, 5*time.Minute), 0).has("old", nil, 1)
	w.eds.Spec.Strategy.Canary.AutoPause = &edsv1.ExtendedDaemonSetSpecStrategyCanaryAutoPause{MaxRestarts: ptr.To[int32](2)}
	w.eds.Spec.Strategy.Canary.AutoFail = &edsv1.ExtendedDaemonSetSpecStrategyCanaryAutoFail{MaxRestarts: ptr.To[int32](2)}
	w.sets[1].Status.Conditions = []edsv1.Condition{{Type: edsv1.ConditionCanary, Status: metav1.ConditionTrue, LastTransitionTime: ago(time.Hour)}}
	w.nodes[0].Annotations[v1alpha1.AnnotationClaims] = `[{"rollout":"Plan/a/b","uid":"u","revision":"r","turn":"t","since":"2026-03-04T11:00:00Z"}]`
	c := w.serve(t)
	verdict := func() daemonset.Verdict {
		t.Helper()
		p := w.begin(t, c)
		p.Canary = &daemonset.Canary{Wanted: 1}
		p.JudgeCanaryPods()
		return p.Canary.Verdict
	}
	if v := verdict(); v.Failed {
		t.Errorf("under the claim it has failed: %+v", v)
	}
	delete(w.nodes[0].Annotations, v1alpha1.AnnotationClaims)
	w.nodes[0].Status.Conditions[0].LastTransitionTime = ago(5 * time.Minute)
	if v := verdict(); v.Failed || !v.LastRestart.IsZero() {
		t.Errorf("after a reboot it has failed: %+v", v)
	}
	restarted(4, time.Second)(w.pods[0])
	if v := verdict(); !v.Failed {
		t.Error("after another restart it has not failed")
	}
}

// What can't be carried out is reported, though there is no revision.
func TestTransitionsWithoutARevision(t *testing.T) {
	w := newWorld(1)
	p := w.begin(t, w.serve(t))
	p.Summarize("InvalidSpec", errNotSeen)
	all := p.stalledEvents(w.eds)
	if len(all) != 1 || all[0].Reason != "Stalled" {
		t.Errorf("got %+v", all)
	}
}

// Who approved a canary is in an Event when the canary ends, because the status then forgets it.
func TestApprovalIsReported(t *testing.T) {
	w := newWorld(2).trying()
	w.eds.Status.Wave = &v1alpha1.WaveStatus{Name: "canary", Number: 1, Of: 2, State: v1alpha1.WaveWaitingForApproval, ApproveWith: "canary@new"}
	w.eds.Status.Approval = &v1alpha1.WaveApproval{Of: "canary@new", By: "jane"}
	c := w.serve(t)
	clientset := fakeclientset.NewClientset()
	c.events = events.NewRecorder(t.Context(), testingclock.NewFakeClock(now), clientset.CoreV1().Events(""), c.client.Scheme(), "moult", "n1")
	p := w.begin(t, c)
	p.EndCanary()
	for range 2 {
		if err := p.writeStatus(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	c.events.Shutdown(t.Context())
	list, err := clientset.CoreV1().Events("").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 || list.Items[0].Reason != "Approved" || list.Items[0].Message != "Wave canary was approved by jane (canary@new)" || list.Items[0].Count > 1 {
		t.Errorf("%v, %+v", err, list.Items)
	}
}
