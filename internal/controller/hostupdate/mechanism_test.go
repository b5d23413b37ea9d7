// SPDX-License-Identifier: Apache-2.0

package hostupdate

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/api/v1alpha1"
)

// release makes hosts that have run 1.0.0, all of them, and then find 1.1.0. With it their nodes are not well.
func release(t *testing.T, hosts int, change ...func(*v1alpha1.NodeRollout)) *loop {
	t.Helper()
	l := newLoop(t, append([]func(*v1alpha1.NodeRollout){func(r *v1alpha1.NodeRollout) {
		r.Spec.Strategy = &v1alpha1.Strategy{
			MaxConcurrent: ptr.To(intstr.FromInt32(3)), MaxFailures: ptr.To(intstr.FromInt32(2)), TurnTimeout: duration(time.Hour), Rollback: true,
		}
		r.Spec.Health = &v1alpha1.NodeHealth{NodesGate: v1alpha1.NodesGate{Conditions: []v1alpha1.NodeConditionRequirement{{Type: "Well", Status: metav1.ConditionTrue}}}}
	}}, change...)...)
	for i := range hosts {
		name := string(rune('a' + i))
		l.host(name, func(h *simulated) { h.offers, h.ill = "1.0.0", "1.1.0" })
		l.edit(&corev1.Node{}, name, `{"metadata":{"labels":{"`+bottlerocket.InterfaceLabel+`":"`+v1alpha1.InterfaceUpdog+`"}}}`)
	}
	l.becomes(metav1.ConditionTrue, fmt.Sprintf("%d of %[1]d nodes updated", hosts))
	l.settles()
	return l
}

// finds lets hosts find 1.1.0.
func (l *loop) finds() {
	l.Helper()
	for name, h := range l.hosts {
		h.offers = "1.1.0"
		l.annotate(name, map[string]any{bottlerocket.State: "unknown"})
	}
}

// rollsBack waits until the rollout is rolled back.
func (l *loop) rollsBack() {
	l.Helper()
	l.until("it is rolled back", func() string {
		if s := l.status(); s.RolledBack != "1.1.0" {
			return fmt.Sprint(s.Revision, s.Failed, s.Waiting)
		}
		return ""
	})
}

// Three hosts that are not well with a new release return to their other partitions, whenever the operator is killed.
func TestRollback(t *testing.T) {
	for life := range 4 {
		t.Run(fmt.Sprintf("killed after %d writes", life), func(t *testing.T) {
			l := release(t, 3)
			l.life = life
			l.restart()
			l.finds()
			l.rollsBack()
			for _, h := range l.hosts {
				if h.runs != "1.1.0" {
					t.Errorf("%s runs %s before", h.name, h.runs)
				}
			}
			l.becomes(metav1.ConditionTrue, "3 of 3 nodes updated; rolled back from 1.1.0")
			for name, h := range l.hosts {
				l.idles(name)
				if h.runs != "1.0.0" || h.orders != 2 || h.boots != 3 {
					t.Errorf("%s was ordered to reboot %d times, has booted %d times, and runs %s", name, h.orders, h.boots, h.runs)
				}
			}
			if s := l.status(); s.Revision != "1.0.0" || s.LastComplete != "1.0.0" || s.RolledBack != "1.1.0" {
				t.Errorf("the revision is %s, after %s, back from %s", s.Revision, s.LastComplete, s.RolledBack)
			}
		})
	}
}

// The trace of a turn that returns a host: nothing is fetched, and it boots its other partitions when its node is drained.
func TestRollbackTurn(t *testing.T) {
	l := release(t, 1, func(r *v1alpha1.NodeRollout) { r.Spec.Strategy.MaxFailures = ptr.To(intstr.FromInt32(0)) })
	l.finds()
	l.rollsBack()
	before := len(l.lines["a"])
	l.becomes(metav1.ConditionTrue, "1 of 1 nodes updated; rolled back from 1.1.0")
	l.settles()
	want := []string{
		"stabilize,stabilize,ready false unschedulable exclude-from-external-load-balancers claimed",
		"stabilize,stabilize,ready false unschedulable exclude-from-external-load-balancers cordoned",
		"rollback-update,unknown,unknown false unschedulable exclude-from-external-load-balancers cordoned",
		"rollback-update,rollback-update,busy false unschedulable exclude-from-external-load-balancers cordoned",
		"rollback-update,rollback-update,ready false unschedulable exclude-from-external-load-balancers cordoned",
		"reboot-update,rollback-update,ready false unschedulable exclude-from-external-load-balancers rebooting",
		"reboot-update,reboot-update,busy false unschedulable exclude-from-external-load-balancers rebooting",
		"reboot-update,reboot-update,ready true unschedulable exclude-from-external-load-balancers rebooting",
		"stabilize,unknown,unknown unknown",
		"stabilize,stabilize,ready true",
	}
	if diff := cmp.Diff(want, l.lines["a"][before:]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	t.Run("a newer release ends it", func(t *testing.T) {
		l.T = t
		l.hosts["a"].offers = "1.2.0"
		l.annotate("a", map[string]any{bottlerocket.State: "unknown"})
		l.until("it has the release", func() string { return strings.TrimPrefix(l.status().LastComplete, "1.2.0") })
		if s := l.status(); s.RolledBack != "" || l.hosts["a"].runs != "1.2.0" {
			t.Errorf("the host runs %s, back from %s", l.hosts["a"].runs, s.RolledBack)
		}
	})
}

// A failure in the first wave is enough.
func TestRollbackOfACanary(t *testing.T) {
	l := release(t, 2, func(r *v1alpha1.NodeRollout) {
		r.Spec.Strategy.MaxFailures, r.Spec.Strategy.Waves = nil, []v1alpha1.Wave{{Name: "canary", Size: ptr.To(intstr.FromInt32(1))}}
	})
	l.finds()
	l.becomes(metav1.ConditionTrue, "2 of 2 nodes updated; rolled back from 1.1.0")
	if boots := l.hosts["a"].boots + l.hosts["b"].boots; boots != 4 {
		t.Errorf("the hosts have booted %d times", boots)
	}
}

// Without rollback in the strategy a host is released that has not rebooted yet.
func TestRollbackIsTakenBack(t *testing.T) {
	l := release(t, 1, func(r *v1alpha1.NodeRollout) { r.Spec.Strategy.MaxFailures = ptr.To(intstr.FromInt32(0)) })
	l.finds()
	l.rollsBack()
	l.reaches("a", "stabilize,stabilize,ready false")
	l.hosts["a"].mute = true
	l.reaches("a", "rollback-update,unknown,unknown")
	l.edit(&v1alpha1.NodeRollout{}, "os", `{"spec":{"strategy":{"rollback":false}}}`)
	l.hosts["a"].mute = false
	l.becomes(metav1.ConditionTrue, "1 of 1 nodes updated")
	l.idles("a")
	if h, s := l.hosts["a"], l.status(); h.orders != 1 || h.runs != "1.1.0" || s.RolledBack != "" || s.Revision != "1.1.0" {
		t.Errorf("the host runs %s after %d orders, and the revision is %s, back from %q", h.runs, h.orders, s.Revision, s.RolledBack)
	}
}

// A host that refuses to return fails with its reason, and that is not rolled back again.
func TestRollbackIsRefused(t *testing.T) {
	l := release(t, 1, func(r *v1alpha1.NodeRollout) { r.Spec.Strategy.MaxFailures = ptr.To(intstr.FromInt32(0)) })
	l.hosts["a"].fails[v1alpha1.HostActionRollback] = "no other partition can boot"
	l.finds()
	l.becomes(metav1.ConditionFalse, "it can't be rolled back: it was rolled back from 1.1.0 already; on Node a rollback-update failed: no other partition can boot")
	if s := l.status(); len(s.Failed) != 1 || s.Failed[0].Reason != v1alpha1.ReasonHostUpdateFailed || l.hosts["a"].orders != 1 {
		t.Errorf("failed are %v", s.Failed)
	}
}

// A rollout that can't be rolled back stays halted, and says why. No word of an agent alone brings hosts back.
func TestRollbackIsImpossible(t *testing.T) {
	broken := func(l *loop) {
		for _, h := range l.hosts {
			h.fails[v1alpha1.HostActionPrepare] = "it is broken"
		}
	}
	for name, tc := range map[string]struct {
		change func(*loop)
		want   string
	}{
		"the agent says that it failed": {broken, "too few hosts failed after they had booted 1.1.0"},
		"another interface": {func(l *loop) {
			l.edit(&corev1.Node{}, "a", `{"metadata":{"labels":{"`+bottlerocket.InterfaceLabel+`":"2.0.0"}}}`)
		}, "the host of Node a has no agent with a way to its other partitions (interface 2.0.0)"},
		"nothing is known": {func(l *loop) {
			r := &v1alpha1.NodeRollout{}
			r.Name = "os"
			if err := l.api.Status().Patch(l.Context(), r, client.RawPatch(types.MergePatchType, []byte(`{"status":{"lastComplete":null}}`))); err != nil {
				l.Fatal(err)
			}
		}, "no earlier version is known that all hosts ran"},
	} {
		t.Run(name, func(t *testing.T) {
			l := release(t, 1, func(r *v1alpha1.NodeRollout) { r.Spec.Strategy.MaxFailures = ptr.To(intstr.FromInt32(0)) })
			l.finds()
			tc.change(l)
			l.becomes(metav1.ConditionFalse, "it can't be rolled back: "+tc.want)
			if s := l.status(); s.RolledBack != "" {
				t.Errorf("it is rolled back from %s", s.RolledBack)
			}
		})
	}
}
