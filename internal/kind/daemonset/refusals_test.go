// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
)

func TestDecideAfterRefusals(t *testing.T) {
	slow := func(w *world) *world {
		w.eds.Spec.Strategy.RollingUpdate.MaxParallelPodCreation = ptr.To[int32](1)
		return w
	}
	surge := func(w *world) *world {
		w.eds.Spec.Strategy.RollingUpdate.MaxUnavailable, w.eds.Spec.Strategy.RollingUpdate.MaxSurge = nil, ptr.To(intstr.FromInt32(2))
		return w
	}
	stuck := func(p *corev1.Pod) { going(p); p.DeletionTimestamp = ptr.To(ago(time.Hour)) }
	for name, tc := range map[string]struct {
		world   func() *world
		refused map[int]time.Duration
		want    string
	}{
		"one after the other":                     {func() *world { return slow(newWorld(3)) }, nil, "create n0"},
		"a refused one comes after the others":    {func() *world { return slow(newWorld(3)) }, map[int]time.Duration{0: time.Second}, "create n1"},
		"the last to be refused is last":          {func() *world { return slow(newWorld(3)) }, map[int]time.Duration{0: time.Second, 1: time.Minute, 2: time.Hour}, "create n2"},
		"one that has its pod is refused no more": {func() *world { return slow(newWorld(2).has("new", nil, 0)) }, map[int]time.Duration{0: time.Second}, "create n1"},
		"a missing pod takes its turn in the slow start": {
			func() *world { return slow(newWorld(3).has("old", nil, 1, 2).has("new", going, 0)) }, nil, "MaxConcurrent n1; SlowStart n2",
		},
		"one that is stuck does not": {func() *world { return slow(newWorld(3).has("old", nil, 1, 2).has("new", stuck, 0)) }, nil, "replace n2/old; MaxConcurrent n1"},
		"with surge an old pod stays where the new one is refused": {
			func() *world { return surge(newWorld(3).has("old", nil, 0, 1, 2)) }, map[int]time.Duration{2: time.Second, 0: time.Second}, "create n1; NodeUnfit n0,n2",
		},
		"and is tried again": {
			func() *world { return surge(newWorld(2).has("old", nil, 0, 1)) }, map[int]time.Duration{0: time.Minute}, "create n0,n1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := tc.world().look(t, func(f *Facts) {
				f.Refused = map[string]Refusal{}
				for n, since := range tc.refused {
					f.Refused[f.Nodes[n].Name] = Refusal{At: now.Add(-since), Message: "no"}
				}
			})
			if got := p.show(); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestSuccessor(t *testing.T) {
	for name, tc := range map[string]struct {
		world func(*world)
		want  string
	}{
		"at first it is the template's own": {func(w *world) { w.eds.Status.ActiveReplicaSet = "" }, "foo-new"},
		"one that says that it is active":   {func(w *world) { w.active("foo-old") }, "foo-old"},
		"also when the status was lost":     {func(w *world) { w.active("foo-old"); w.eds.Status.ActiveReplicaSet = "" }, "foo-old"},
		"the template's own was deleted":    {func(*world) {}, "foo-new"},
		"while another was tried": {
			func(w *world) { w.eds.Status.Canary = &edsv1.ExtendedDaemonSetStatusCanary{ReplicaSet: "foo-new"} }, "foo-old",
		},
		"while the template has changed": {func(w *world) { w.eds.Generation = 7 }, "foo-old"},
		"but there is nothing to try":    {func(w *world) { w.eds.Generation, w.eds.Spec.Strategy.Canary = 7, nil }, "foo-new"},
		"while another had failed":       {func(w *world) { w.failed("foo-new") }, "foo-old"},
		"and there is none that has not": {func(w *world) { w.failed("foo-new"); w.failed("foo-old") }, "foo-new"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(1)
			w.eds.Spec.Strategy.Canary = &edsv1.ExtendedDaemonSetSpecStrategyCanary{}
			w.eds.Status.ActiveReplicaSet = "foo-gone"
			w.sets[1].Status.Conditions = nil
			tc.world(w)
			p := &Judge{Facts: Facts{EDS: w.eds}, Strategy: &w.eds.Spec.Strategy, Owned: w.sets, Target: w.sets[1]}
			if got := p.Successor().Name; got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

func (w *world) active(name string) { w.says(name, edsv1.ConditionActive) }

func (w *world) failed(name string) { w.says(name, edsv1.ConditionCanaryFailed) }

func (w *world) says(name, condition string) {
	for _, rs := range w.sets {
		if rs.Name == name {
			rs.Status.Conditions = append(rs.Status.Conditions, edsv1.Condition{Type: condition, Status: "True"})
		}
	}
}

// The message about refused pods does not depend on which of them was tried last.
func TestRefusal(t *testing.T) {
	refused := map[string]Refusal{"n1": {now.Add(-time.Second), "no room on n1"}, "n2": {now, "no room on n2"}}
	for want, w := range map[string]*world{
		"no room on n1": newWorld(3), "no room on n2": newWorld(3).has("new", nil, 1), "": newWorld(3).has("new", nil, 1, 2),
	} {
		if _, got := w.look(t, func(f *Facts) { f.Refused = refused }).reconcileError(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
