// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
)

// crashing has a container that ends at once, again and again.
func crashing(e *edsv1.ExtendedDaemonSet) {
	version("crashing")(e)
	e.Spec.Template.Spec.Containers[0].Command = []string{"sh", "-c", "exit 1"}
}

// neverReady has a container that runs, and is not ready.
func neverReady(e *edsv1.ExtendedDaemonSet) {
	version("never-ready")(e)
	e.Spec.Template.Spec.Containers[0].ReadinessProbe = &corev1.Probe{
		PeriodSeconds: 1, FailureThreshold: 1, ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"false"}}},
	}
}

// canariesThatFail gives each of them up: the nodes go back to what ran before, the template is left as it is, and the status
// says so until there is another.
func canariesThatFail(t *testing.T, all *daemons) {
	d := all.on(all.nodes[:2]...)
	seconds := func(s int) *metav1.Duration { return &metav1.Duration{Duration: time.Duration(s) * time.Second} }
	tests := newTogether(t, 3)
	for _, tc := range []struct {
		name     string
		duration time.Duration
		canary   func(*edsv1.ExtendedDaemonSetSpecStrategyCanary)
		template func(*edsv1.ExtendedDaemonSet)
		reasons  []edsv1.StatusReason
		// paused is true where it is paused by hand before it has a pod.
		paused bool
		states []edsv1.State
	}{
		{
			name: "restarts", duration: 30 * time.Second, template: crashing,
			canary: func(c *edsv1.ExtendedDaemonSetSpecStrategyCanary) {
				c.AutoPause.MaxRestarts, c.AutoFail.MaxRestarts = ptr.To[int32](0), ptr.To[int32](1)
			},
			reasons: []edsv1.StatusReason{edsv1.StatusReasonCLB, "Error"},
			states:  []edsv1.State{edsv1.StateRunning, edsv1.StateCanary, edsv1.StateCanaryPaused, edsv1.StateCanaryFailed, edsv1.StateRunning},
		},
		{
			name: "restarts-for-long", duration: 30 * time.Second, template: crashing,
			canary: func(c *edsv1.ExtendedDaemonSetSpecStrategyCanary) {
				c.AutoPause.Enabled, c.AutoFail.MaxRestarts, c.AutoFail.MaxRestartsDuration = ptr.To(false), ptr.To[int32](100), seconds(3)
			},
			reasons: []edsv1.StatusReason{edsv1.StatusReasonRestartsTimeoutExceeded},
			states:  []edsv1.State{edsv1.StateRunning, edsv1.StateCanary, edsv1.StateCanaryFailed, edsv1.StateRunning},
		},
		{
			name: "never-ready", duration: 2 * time.Second, template: neverReady,
			canary:  func(c *edsv1.ExtendedDaemonSetSpecStrategyCanary) { c.AutoFail.CanaryTimeout = seconds(6) },
			reasons: []edsv1.StatusReason{edsv1.StatusReasonTimeoutExceeded},
			states:  []edsv1.State{edsv1.StateRunning, edsv1.StateCanary, edsv1.StateCanaryFailed, edsv1.StateRunning},
		},
		{
			name: "without-a-pod", template: version("v2"), paused: true,
			canary:  func(c *edsv1.ExtendedDaemonSetSpecStrategyCanary) { c.AutoFail.CanaryTimeout = seconds(20) },
			reasons: []edsv1.StatusReason{edsv1.StatusReasonTimeoutExceeded},
			states:  []edsv1.State{edsv1.StateRunning, edsv1.StateCanary, edsv1.StateCanaryPaused, edsv1.StateCanaryFailed, edsv1.StateRunning},
		},
	} {
		tests.run(tc.name, func(t *testing.T) {
			e := d.start(t, d.daemon(tc.name, canary(tc.duration), func(e *edsv1.ExtendedDaemonSet) { tc.canary(e.Spec.Strategy.Canary) }))
			active, since, began := e.Status.ActiveReplicaSet, d.now(t), time.Now()
			if tc.paused {
				d.edit(t, tc.name, func(e *edsv1.ExtendedDaemonSet) {
					e.Annotations = map[string]string{edsv1.AnnotationCanaryPaused: edsv1.True, edsv1.AnnotationCanaryUnpaused: "false"}
				}, tc.template)
			} else {
				d.edit(t, tc.name, tc.template)
			}
			spec := d.get(t, tc.name).Spec
			e = d.hasFailed(t, tc.name, active)
			failed := failedRevision(t, d, e)
			if diff := cmp.Diff(spec, e.Spec); diff != "" {
				t.Errorf("the spec was written (-before +after)\n%s", diff)
			}

			history := d.history(t)
			seen := states(history, tc.name)
			if tc.paused { // It is one or the other that is seen first.
				seen, tc.states = slices.DeleteFunc(seen, isCanary), slices.DeleteFunc(tc.states, isCanary)
			}
			if tc.name == "restarts" && !slices.ContainsFunc(history, hasRestartedOnce(tc.name)) {
				// A kubelet that tells of two restarts at once leaves nothing to be paused for.
				tc.states = slices.DeleteFunc(tc.states, func(s edsv1.State) bool { return s == edsv1.StateCanaryPaused })
			}
			if diff := cmp.Diff(tc.states, seen); diff != "" && !d.faltered(t, began) {
				t.Errorf("states (-want +got)\n%s", diff)
			}
			for _, c := range history {
				o, ok := c.object.(*edsv1.ExtendedDaemonSet)
				if ok && o.Name == tc.name && o.Status.State == edsv1.StateCanaryFailed && !slices.Contains(tc.reasons, o.Status.Reason) {
					t.Errorf("it has failed for %q, want one of %v", o.Status.Reason, tc.reasons)
					break
				}
			}
			if down := d.mostDown(t, since, of(tc.name)); down > 1 && !d.faltered(t, began) {
				t.Errorf("%d nodes were without a pod at once", down)
			}
			made := len(creations(history, tc.name))
			lasts(t, 3*time.Second, "it is not tried again", func(context.Context) error {
				if n := len(creations(d.history(t), tc.name)); n != made {
					return fmt.Errorf("%d pods were made", n-made)
				}
				return nil
			})
			if tc.name == "never-ready" {
				d.triesAgain(t, tc.name, failed, active)
			}
			d.neverActive(t, tc.name, failed)

			// Another template is tried as if nothing had been.
			d.edit(t, tc.name, func(e *edsv1.ExtendedDaemonSet) {
				c := &e.Spec.Template.Spec.Containers[0]
				c.Command, c.ReadinessProbe, e.Annotations = []string{"sh", "-c", sleeper}, nil, nil
				e.Spec.Strategy.Canary.AutoFail.CanaryTimeout = nil
			}, version("mended"))
			if tc.duration == 0 {
				e := d.inCanary(t, tc.name, 1)
				d.annotate(t, e, map[string]any{edsv1.AnnotationCanaryValid: e.Status.Canary.ReplicaSet})
			}
			e = d.settled(t, tc.name)
			for _, kind := range []string{edsv1.ConditionCanaryFailed, edsv1.ConditionStalled} {
				if edsv1.IsConditionTrue(e.Status.Conditions, kind) {
					t.Errorf("%s is still True: %s", kind, statusOf(e))
				}
			}
			d.onePerNode(t, tc.name)
		})
	}
	tests.wait()
}

// hasRestartedOnce are the changes by which a container of a pod of an ExtendedDaemonSet has restarted once, and not again.
func hasRestartedOnce(name string) func(daemonChange) bool {
	return func(c daemonChange) bool {
		p, ok := c.object.(*corev1.Pod)
		return ok && of(name)(p) && slices.ContainsFunc(p.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return s.RestartCount == 1 })
	}
}

func isCanary(s edsv1.State) bool { return s == edsv1.StateCanary }

// hasFailed waits until a canary has been given up, and every node has a pod of the active revision again.
func (d *daemons) hasFailed(t *testing.T, name, active string) *edsv1.ExtendedDaemonSet {
	t.Helper()
	return d.until(t, name, "has given the canary up", func(e *edsv1.ExtendedDaemonSet) bool {
		s := e.Status
		ok := s.State == edsv1.StateRunning && s.ActiveReplicaSet == active && s.Canary == nil && int(s.Available) == len(d.nodes) &&
			edsv1.IsConditionTrue(s.Conditions, edsv1.ConditionCanaryFailed) && edsv1.IsConditionTrue(s.Conditions, edsv1.ConditionStalled)
		pods := d.pods(t, name)
		for i := range pods {
			ok = ok && podAvailable(&pods[i]) && pods[i].Labels[edsv1.LabelReplicaSetName] == active
		}
		return ok && len(pods) == len(d.nodes)
	})
}

// failedRevision is the one whose canary has failed, as the status and the revision itself say.
func failedRevision(t *testing.T, d *daemons, e *edsv1.ExtendedDaemonSet) string {
	t.Helper()
	name := ""
	for _, r := range d.revisions(t, e.Name) {
		if r != e.Status.ActiveReplicaSet {
			name = r
		}
	}
	c := edsv1.FindCondition(e.Status.Conditions, edsv1.ConditionCanaryFailed)
	if c == nil || c.Reason != edsv1.ReasonCanaryFailed || !strings.HasPrefix(c.Message, "canary failed with ers: "+name) {
		t.Errorf("the condition is %+v, want it to name %s", c, name)
	}
	eventually(t, name+" says that it has failed", func(context.Context) (string, bool) {
		r := d.revision(t, name)
		return fmt.Sprintf("%+v", r.Status), r.Status.Status == edsv1.ReplicaSetCanaryFailed &&
			edsv1.IsConditionTrue(r.Status.Conditions, edsv1.ConditionCanaryFailed)
	})
	return name
}

// triesAgain resets a failed canary, which fails again, but not before it was looked at.
func (d *daemons) triesAgain(t *testing.T, name, failed, active string) {
	t.Helper()
	limit := func(timeout *metav1.Duration) {
		t.Helper()
		d.edit(t, name, func(e *edsv1.ExtendedDaemonSet) { e.Spec.Strategy.Canary.AutoFail.CanaryTimeout = timeout })
	}
	before := d.get(t, name).Spec.Strategy.Canary.AutoFail.CanaryTimeout
	limit(nil)
	d.mark(t, failed, metav1.ConditionFalse, edsv1.ReasonReset)
	e := d.until(t, name, "tries again", func(e *edsv1.ExtendedDaemonSet) bool {
		return e.Status.State == edsv1.StateCanary && e.Status.Canary != nil && e.Status.Canary.ReplicaSet == failed
	})
	if edsv1.IsConditionTrue(e.Status.Conditions, edsv1.ConditionStalled) || edsv1.IsConditionTrue(e.Status.Conditions, edsv1.ConditionCanaryFailed) {
		t.Errorf("it is tried again, and: %s", statusOf(e))
	}
	d.until(t, name, "has a canary pod again", func(e *edsv1.ExtendedDaemonSet) bool {
		return e.Status.Canary != nil && slices.ContainsFunc(d.pods(t, name), func(p corev1.Pod) bool { return p.Labels[edsv1.LabelReplicaSetName] == failed })
	})
	limit(before)
	d.hasFailed(t, name, active)
}
