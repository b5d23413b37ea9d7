// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/rollout"
)

// gaveUp is a world whose canary of the revision "new" is over, and left its pods on these nodes, of five. The others have the
// active one.
func gaveUp(nodes ...int) *world {
	w := newWorld(5)
	w.eds.Status.ActiveReplicaSet = "foo-old"
	w.eds.Spec.Template.Spec.Containers[0].Image = "old"
	w.sets[0].Status.Conditions = []edsv1.Condition{{Type: edsv1.ConditionActive, Status: metav1.ConditionTrue, LastTransitionTime: ago(time.Hour)}}
	w.sets[1].Status.Conditions = []edsv1.Condition{{Type: edsv1.ConditionCanary, Status: metav1.ConditionFalse}}
	w.has("new", unready, nodes...)
	for n := range w.nodes {
		if !slices.Contains(nodes, n) {
			w.has("old", nil, n)
		}
	}
	return w
}

// The pods of a failed canary are replaced as freely as they were made.
func TestFailedCanary(t *testing.T) {
	with := func(w *world, change func(*edsv1.ExtendedDaemonSetSpecStrategy)) *world {
		change(&w.eds.Spec.Strategy)
		return w
	}
	waves := func(s *edsv1.ExtendedDaemonSetSpecStrategy) {
		s.Waves = []v1alpha1.Wave{{Size: ptr.To(intstr.FromInt32(1)), Soak: &metav1.Duration{Duration: time.Hour}, Approval: v1alpha1.ApprovalManual}}
	}
	closed := func(s *edsv1.ExtendedDaemonSetSpecStrategy) {
		s.Windows = []v1alpha1.Window{{Schedule: "0 3 * * *", Duration: metav1.Duration{Duration: time.Hour}}}
	}
	unknown := func(s *edsv1.ExtendedDaemonSetSpecStrategy) { closed(s); s.Windows[0].TimeZone = "Nowhere/At-All" }
	budget := rollout.Budget{Name: "b", Paused: true}
	failed := func(w *world) *world { w.failed("foo-new"); return w }
	for name, tc := range map[string]struct {
		world   *world
		budgets []rollout.Budget
		want    string
	}{
		"whatever else is asked of the strategy": {failed(gaveUp(0, 1)), nil, "replace n0/new,n1/new"},
		"as many as may be at once":              {failed(gaveUp(0, 1, 2)), nil, "replace n1/new,n2/new; MaxConcurrent n0"},
		"before other outdated pods": {
			failed(with(gaveUp(0), closed)).orphans(4), nil, "replace n0/new; WavePending n4",
		},
		"waves, their soak and approval":               {with(failed(gaveUp(0, 1)), waves), nil, "replace n0/new,n1/new"},
		"closed windows":                               {with(failed(gaveUp(0, 1)), closed), nil, "replace n0/new,n1/new"},
		"windows that can't be read":                   {with(failed(gaveUp(0, 1)), unknown), nil, "replace n0/new,n1/new"},
		"a paused budget":                              {failed(gaveUp(0, 1)), []rollout.Budget{budget}, "replace n0/new,n1/new"},
		"a failure that has halted":                    {with(failed(gaveUp(0, 1)), func(s *edsv1.ExtendedDaemonSetSpecStrategy) { s.MaxFailures = ptr.To(intstr.FromInt32(0)) }), nil, "replace n0/new,n1/new"},
		"with OnDelete too":                            {with(failed(gaveUp(0)), func(s *edsv1.ExtendedDaemonSetSpecStrategy) { s.Type = edsv1.StrategyOnDelete }), nil, "replace n0/new"},
		"OnDelete, and the template was taken from it": {onDelete(gaveUp(0)), nil, "replace n0/new"},
		"OnDelete, and the canary has moved":           {moved(onDelete(gaveUp(0, 1))), nil, "replace n0/new"},
		"OnDelete, of one that was active once":        {onDelete(gaveUpOnce(0)), nil, "OnDelete n0"},
		"but not while it is paused":                   {with(failed(gaveUp(0)), func(s *edsv1.ExtendedDaemonSetSpecStrategy) { s.Paused = true }), nil, "Paused n0"},
		"nor on a node that another rollout has, which holds up no other": {
			func() *world {
				w := failed(gaveUp(0)).orphans(4)
				w.nodes[0].Annotations[v1alpha1.AnnotationClaims] = `[{"rollout":"Plan/a/b","uid":"u","revision":"r","turn":"t","since":"2026-03-04T11:00:00Z"}]`
				return w
			}(), nil, "replace n4/orphan; Claimed n0",
		},
		"nor on a node that is not ready":          {failed(gaveUp(0, 1)).down(0), nil, "replace n1/new; NodeNotReady n0"},
		"one that the template was taken from":     {with(gaveUp(0, 1), closed), nil, "replace n0/new,n1/new"},
		"not a revision that has been active once": {with(gaveUpOnce(0, 1), closed), nil, "OutsideWindow n0,n1"},
		"not one that was never tried":             {with(untried(gaveUp(0, 1)), closed), nil, "OutsideWindow n0,n1"},
	} {
		t.Run(name, func(t *testing.T) {
			p := tc.world.look(t, func(f *Facts) { f.Fleet.Budgets = tc.budgets })
			if got := p.show(); got != tc.want {
				t.Errorf("got  %q\nwant %q", got, tc.want)
			}
		})
	}
}

// gaveUpOnce is the same with a revision that all nodes had before.
func gaveUpOnce(nodes ...int) *world {
	w := gaveUp(nodes...)
	w.sets[1].Status.Conditions = append(w.sets[1].Status.Conditions, edsv1.Condition{Type: edsv1.ConditionActive, Status: metav1.ConditionFalse})
	return w
}

func onDelete(w *world) *world {
	w.eds.Spec.Strategy.Type = edsv1.StrategyOnDelete
	return w
}

// moved has the canary go on, on the second node.
func moved(w *world) *world {
	w.eds.Spec.Template.Spec.Containers[0].Image = "new"
	w.trying().eds.Status.Canary.Nodes = []string{"n1"}
	return w
}

func untried(w *world) *world {
	w.sets[1].Status.Conditions = nil
	return w
}

// orphans takes the owner from the pod that is on a node.
func (w *world) orphans(node int) *world {
	for _, pod := range w.pods {
		if pod.Spec.NodeName == w.nodes[node].Name {
			orphan(pod)
		}
	}
	return w
}
