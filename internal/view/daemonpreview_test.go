// SPDX-License-Identifier: Apache-2.0

package view

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/api/v1alpha1"
)

// steps says what a preview has in store, in few words.
func steps(v *Preview) string {
	all := make([]string, 0, len(v.Steps))
	for _, s := range v.Steps {
		said := s.Node
		if s.Wave != "" {
			said = s.Wave + ":" + said
		}
		if s.Reason != "" {
			said += " " + string(s.Reason)
		}
		if s.At != nil {
			said += " +" + s.At.Sub(now).String()
		}
		all = append(all, said)
	}
	return strings.Join(all, ", ")
}

// byName orders nodes by their names.
func byName(f *farm) {
	strategyOf(f).Order = []v1alpha1.Order{{By: v1alpha1.OrderLabel, Key: corev1.LabelHostname}}
}

// another changes the template, as a file may.
func another(f *farm) { f.eds.Spec.Template = template("newest") }

func withCanary(nodes int32, change ...func(*edsv1.ExtendedDaemonSetSpecStrategyCanary)) func(*farm) {
	return func(f *farm) {
		c := &edsv1.ExtendedDaemonSetSpecStrategyCanary{Replicas: ptr.To(intstr.FromInt32(nodes)), ValidationMode: edsv1.ValidationModeAuto}
		for _, how := range change {
			how(c)
		}
		strategyOf(f).Canary = c
	}
}

func TestPreviewDaemonSet(t *testing.T) {
	cordonedNode := func(f *farm) { f.nodes[0].Spec.Unschedulable = true }
	for name, tc := range map[string]struct {
		farm  *farm
		turn  time.Duration
		steps string
		// canary, end and left are of the canary's nodes and the schedule.
		canary []string
		end    time.Duration
		notes  int
	}{
		"nothing to do": {farm: newFarm(2, byName).has("new", nil, 0, 1)},
		"another template, without a canary": {
			farm: newFarm(3, byName, another).has("new", nil, 0, 1, 2), turn: time.Minute,
			steps: "n0 +0s, n1 +0s, n2 MaxConcurrent +1m0s", end: 2 * time.Minute,
		},
		"another template, tried on two": {
			farm: newFarm(4, byName, another, withCanary(2)).has("new", nil, 0, 1, 2, 3), turn: time.Minute,
			steps:  "canary:n0 +0s, canary:n1 +0s, remainder:n2 WavePending +11m0s, remainder:n3 WavePending +11m0s",
			canary: []string{"n0", "n1"}, end: 12 * time.Minute,
		},
		"in the operator's validation mode": {
			farm:  newFarm(1, another, withCanary(1, func(c *edsv1.ExtendedDaemonSetSpecStrategyCanary) { c.ValidationMode = "" })).has("new", nil, 0),
			steps: "canary:n0", canary: []string{"n0"}, notes: 1,
		},
		"with waves after the canary": {
			farm: newFarm(4, byName, another, withCanary(1), func(f *farm) {
				strategyOf(f).Waves = []v1alpha1.Wave{{Name: "first", Size: ptr.To(intstr.FromInt32(1))}}
			}).has("new", nil, 0, 1, 2, 3),
			// The canary's node is all of the next wave, as it is updated by then.
			steps:  "canary:n0, remainder:n1 WavePending, remainder:n2 WavePending, remainder:n3 WavePending",
			canary: []string{"n0"},
		},
		"a person has to validate it": {
			farm: newFarm(2, byName, another, withCanary(1, func(c *edsv1.ExtendedDaemonSetSpecStrategyCanary) { c.ValidationMode = edsv1.ValidationModeManual })).has("new", nil, 0, 1), turn: time.Minute,
			steps: "canary:n0 +0s, remainder:n1 WavePending +1m0s", canary: []string{"n0"}, end: 2 * time.Minute,
		},
		"the canary is not tried on a cordoned node": {
			farm:  newFarm(3, byName, another, withCanary(2), cordonedNode).has("new", nil, 0, 1, 2),
			steps: "canary:n1, canary:n2, remainder:n0 WavePending", canary: []string{"n1", "n2"},
		},
		"what is unfit stays so after the canary": {
			farm: newFarm(3, byName, another, withCanary(1), func(f *farm) {
				f.nodes[2].Spec.Taints = []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoSchedule}}
			}).has("new", nil, 0, 1, 2),
			steps: "canary:n0, remainder:n1 WavePending, remainder:n2 NodeUnfit", canary: []string{"n0"},
		},
		"and on fewer than wanted if need be": {
			farm:  newFarm(2, byName, another, withCanary(5), cordonedNode).has("new", nil, 0, 1),
			steps: "canary:n1, remainder:n0 WavePending", canary: []string{"n1"}, notes: 1,
		},
		"a canary that goes on": {
			farm:  newFarm(3, byName).tries("n2").has("new", nil, 2).has("old", nil, 0, 1),
			steps: "remainder:n0 WaveSoaking, remainder:n1 WaveSoaking", canary: []string{"n2"},
		},
		"a canary that has failed": {
			farm: newFarm(2, byName, func(f *farm) {
				f.tries()
				f.eds.Status.Canary = nil
				f.sets["foo-new"].Status.Conditions = []edsv1.Condition{{Type: edsv1.ConditionCanaryFailed, Status: metav1.ConditionTrue}}
			}).has("new", nil, 0).has("old", nil, 1),
			steps: "n0", notes: 1,
		},
		"the slow start": {
			farm: newFarm(4, byName, another, func(f *farm) {
				strategyOf(f).RollingUpdate.MaxUnavailable = ptr.To(intstr.FromString("100%"))
				strategyOf(f).RollingUpdate.SlowStartAdditiveIncrease = ptr.To(intstr.FromInt32(1))
			}).has("new", nil, 0, 1, 2, 3), turn: 5 * time.Second,
			steps: "n0 +0s, n1 SlowStart +10s, n2 SlowStart +20s, n3 SlowStart +30s", end: 35 * time.Second,
		},
		"on delete": {
			farm:  newFarm(2, byName, another, func(f *farm) { strategyOf(f).Type = edsv1.StrategyOnDelete }).has("new", nil, 0, 1),
			steps: "n0 OnDelete, n1 OnDelete",
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := tc.farm.eds.DeepCopy()
			v := tc.farm.see().Preview(tc.farm.eds, Supposition{Turn: tc.turn})
			if got := steps(&v); got != tc.steps || v.Problem != "" {
				t.Errorf("got  %s\nwant %s (%s)", got, tc.steps, v.Problem)
			}
			var canary []string
			if v.Canary != nil {
				canary = v.Canary.Nodes
			}
			if !slices.Equal(canary, tc.canary) {
				t.Errorf("canary on %v, want %v", canary, tc.canary)
			}
			if len(v.Notes) != tc.notes {
				t.Errorf("notes: %q", v.Notes)
			}
			if s := v.Schedule; (s != nil) != (tc.turn > 0) || s != nil && (s.End == nil || s.End.Sub(now) != tc.end) {
				t.Errorf("schedule: %+v, want an end after %s", s, tc.end)
			}
			if diff := cmp.Diff(before, tc.farm.eds); diff != "" {
				t.Errorf("it has changed (-was +is):\n%s", diff)
			}
		})
	}
}

func TestPreviewNewDaemonSet(t *testing.T) {
	f := newFarm(3, func(f *farm) {
		f.eds.Status, f.eds.UID, f.sets = edsv1.ExtendedDaemonSetStatus{}, "", nil
		strategyOf(f).RollingUpdate = edsv1.ExtendedDaemonSetSpecStrategyRollingUpdate{}
		strategyOf(f).Canary = &edsv1.ExtendedDaemonSetSpecStrategyCanary{}
		f.nodes[1].Spec.Taints = []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoSchedule}}
	})
	v := f.see().Preview(f.eds, Supposition{New: true, Turn: time.Minute})
	if len(v.Steps)+len(v.InTurn) != 0 || v.Canary != nil {
		t.Errorf("%+v", v)
	}
	// The second pod is made when the first is not in creation any more.
	if s := v.Schedule; s == nil || s.End == nil || s.End.Sub(now) != 70*time.Second {
		t.Errorf("schedule: %+v", s)
	}
	if diff := cmp.Diff(&Creation{Nodes: 2, Limit: 1, Increase: 1, Interval: "1m0s", Most: 250}, v.Creation); diff != "" {
		t.Errorf("creation (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]Unfit{{Message: "the template does not tolerate its taint k:NoSchedule", Nodes: []string{"n1"}}}, v.Unfit); diff != "" {
		t.Errorf("unfit (-want +got):\n%s", diff)
	}
}

// TestPreviewDaemonSetWithoutEnd: a pod on a node that is not ready keeps the rollout from its end, though no node waits to start.
func TestPreviewDaemonSetWithoutEnd(t *testing.T) {
	f := newFarm(2, func(f *farm) { unready(&f.nodes[0]) }).has("new", notReady, 0).has("new", nil, 1)
	s := f.see().Preview(f.eds, Supposition{Turn: time.Minute}).Schedule
	if s == nil || s.End != nil || s.Left != 1 || s.Stuck == "" {
		t.Errorf("schedule: %+v, want no end and 1 node left", s)
	}
}

// TestPreviewKnowsTheRevision: what the API server fills in is no change.
func TestPreviewKnowsTheRevision(t *testing.T) {
	f := newFarm(1)
	stored := f.sets["foo-new"]
	stored.Spec.Template.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, Protocol: corev1.ProtocolTCP}}
	f.eds.Spec.Template = *stored.Spec.Template.DeepCopy()
	stored.Spec.TemplateGeneration = RevisionOf(f.eds)
	f.has("new", nil, 0)
	f.eds.Spec.Template.Spec.Containers[0].Ports[0].Protocol = ""
	if v := f.see().Preview(f.eds, Supposition{}); len(v.Steps) != 0 || v.Rollout.Version != "foo-new" {
		t.Errorf("%+v", v)
	}
}

func TestPreviewDaemonSetProblems(t *testing.T) {
	for want, change := range map[string]func(*farm){
		"spec.strategy.rollingUpdate.maxUnavailable ": func(f *farm) { strategyOf(f).RollingUpdate.MaxUnavailable = ptr.To(intstr.FromInt32(0)) },
		"spec.strategy.windows[0]": func(f *farm) {
			strategyOf(f).Windows = []v1alpha1.Window{{Schedule: "never", Duration: metav1.Duration{Duration: time.Hour}}}
		},
	} {
		f := newFarm(1, change)
		if v := f.see().Preview(f.eds, Supposition{Turn: time.Minute}); !strings.HasPrefix(v.Problem, want) || v.Schedule != nil {
			t.Errorf("%q, want %q", v.Problem, want)
		}
	}
}
