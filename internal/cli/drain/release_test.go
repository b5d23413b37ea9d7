// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"moult.dev/moult/api/v1alpha1"
)

const k3s = "Plan/system-upgrade/k3s"

func cordonedBy(by string) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Spec.Unschedulable = true
		n.Annotations = map[string]string{v1alpha1.AnnotationCordonedBy: by}
	}
}

func excludedBy(by string) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Labels[corev1.LabelNodeExcludeBalancers] = ""
		if by != "" {
			if n.Annotations == nil {
				n.Annotations = map[string]string{}
			}
			n.Annotations[v1alpha1.AnnotationExcludedBy] = by
		}
	}
}

// What a drain that fails has done to its node is undone, whoever drains, and nothing else.
func TestDrainGivesBack(t *testing.T) {
	const recorded = `["ReplicaSet/web/rs"]`
	for name, tc := range map[string]struct {
		plan    string
		node    *corev1.Node
		cordons string
		marks   map[string]string
	}{
		"a rollout's node": {"k3s", aNode("n1"), "false ", nil},
		"a rollout's, cordoned by its earlier attempt": {
			"k3s", aNode("n1", cordonedBy(k3s), excludedBy(k3s)), "false ", nil,
		},
		"a rollout's, cordoned by a person": {"k3s", aNode("n1", cordoned), "true ", nil},
		"a rollout's, cordoned by another": {
			"k3s", aNode("n1", cordonedBy("Plan/a/b")), "true Plan/a/b", map[string]string{v1alpha1.AnnotationCordonedBy: "Plan/a/b"},
		},
		"a rollout's, excluded by a person": {"k3s", aNode("n1", excludedBy("")), "false ", map[string]string{"excluded": ""}},
		"a rollout's, excluded by another": {
			"k3s", aNode("n1", excludedBy("Plan/a/b")), "false ", map[string]string{"excluded": "", v1alpha1.AnnotationExcludedBy: "Plan/a/b"},
		},
		"by hand":                  {"", aNode("n1"), "false ", nil},
		"by hand, cordoned before": {"", aNode("n1", cordoned), "true ", nil},
		"by hand, excluded before": {"", aNode("n1", excludedBy("")), "false ", map[string]string{"excluded": ""}},
		"by hand, excluded and cordoned by hand before": {
			"", aNode("n1", cordoned, excludedBy("moult drain")), "true ", map[string]string{"excluded": "", v1alpha1.AnnotationExcludedBy: "moult drain"},
		},
		"by hand, cordoned by a rollout": {
			"", aNode("n1", cordonedBy(k3s)), "true " + k3s, map[string]string{v1alpha1.AnnotationCordonedBy: k3s},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, tc.node, pod("slow", "n1"))
			w.stuck["slow"] = true
			w.env["SYSTEM_UPGRADE_PLAN_NAME"] = tc.plan
			seen := map[corev1.NodeConditionType]string{}
			w.at[time.Second] = func() {
				seen = w.conditions("n1")
				if _, excluded := w.node("n1").Labels[corev1.LabelNodeExcludeBalancers]; !excluded || w.cordons()["n1"][:4] != "true" {
					t.Errorf("meanwhile: %v, cordoned is %s", w.marks("n1"), w.cordons()["n1"])
				}
			}
			got := w.run(t.Context(), "drain n1 --timeout 5s --exclude-from-load-balancers")
			if got.Error == "" {
				t.Fatal("no error")
			}
			if tc.marks == nil {
				tc.marks = map[string]string{}
			}
			tc.marks[v1alpha1.AnnotationEvicted] = recorded
			expect(t, "cordons", map[string]string{"n1": tc.cordons}, w.cordons())
			expect(t, "marks", tc.marks, w.marks("n1"))
			by := "moult drain"
			if tc.plan != "" {
				by = k3s
			}
			expect(t, "conditions meanwhile", map[corev1.NodeConditionType]string{
				"MaintenanceInProgress": "True " + by + ": the node is in maintenance", "DrainInProgress": "True " + by + ": 1 pod left",
			}, seen)
			expect(t, "conditions", map[corev1.NodeConditionType]string{
				"MaintenanceInProgress": "False " + by + ": over", "DrainInProgress": "False " + by + ": over",
			}, w.conditions("n1"))
		})
	}
}

// A drain that succeeds keeps what it has done: the node is drained.
func TestDrainKeepsWhatItHasDrained(t *testing.T) {
	w := newWorld(t, aNode("n1"), pod("a", "n1"))
	w.env["SYSTEM_UPGRADE_PLAN_NAME"] = "k3s"
	if got := w.run(t.Context(), "drain n1 --exclude-from-load-balancers"); got.Error != "" {
		t.Fatal(got)
	}
	expect(t, "cordons", map[string]string{"n1": "true " + k3s}, w.cordons())
	expect(t, "marks", map[string]string{
		"excluded": "", v1alpha1.AnnotationExcludedBy: k3s, v1alpha1.AnnotationCordonedBy: k3s, v1alpha1.AnnotationEvicted: `["ReplicaSet/web/rs"]`,
	}, w.marks("n1"))

	if got := w.run(t.Context(), "uncordon n1"); got.Error != "" {
		t.Fatal(got)
	}
	expect(t, "marks after uncordon", map[string]string{v1alpha1.AnnotationEvicted: `["ReplicaSet/web/rs"]`}, w.marks("n1"))
	expect(t, "conditions after uncordon", map[corev1.NodeConditionType]string{
		"MaintenanceInProgress": "False " + k3s + ": over", "DrainInProgress": "False " + k3s + ": the drain is over", "Drained": "False " + k3s + ": over",
	}, w.conditions("n1"))
}

// An API server that fails for a moment fails no giving back.
func TestDrainGivesBackWhenItCan(t *testing.T) {
	for failures, want := range map[int]string{releaseAttempts - 1: "false ", releaseAttempts: "true "} {
		w := newWorld(t, aNode("n1"), pod("u", "n1", unowned))
		gets := 0
		w.Client = interceptor.NewClient(w.Client.(client.WithWatch), interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
				// The first reads the node, the second sets its conditions.
				if gets++; gets > 2 && gets <= 2+failures {
					return errors.New("connection refused")
				}
				return c.Get(ctx, key, obj, opts...)
			},
		})
		got := w.run(t.Context(), "drain n1")
		expect(t, "cordons", map[string]string{"n1": want}, w.cordons())
		reported := got.Error != "draining node n1, nothing is touched because of these pods:\n  pod web/u has no controller (use --force to drain it all the same)"
		if reported != (want == "true ") {
			t.Errorf("after %d failures: %s", failures, got.Error)
		}
	}
}

func TestDrainGivesBackNothingOfANodeThatIsGone(t *testing.T) {
	w := newWorld(t, aNode("n1"), pod("slow", "n1"))
	w.stuck["slow"] = true
	w.at[time.Second] = func() {
		if err := w.Delete(t.Context(), aNode("n1")); err != nil {
			t.Error(err)
		}
	}
	got := w.run(t.Context(), "drain n1 --timeout 3s")
	expect(t, "error", "draining node n1, its time is over and these pods are still there:\n  pod web/slow is still terminating", got.Error)
	expect(t, "err out", []string{"node/n1 not drained"}, got.ErrOut)
}

func TestDrainWithoutTheRightToConditions(t *testing.T) {
	w := newWorld(t, aNode("n1"), aNode("n2"), pod("a", "n1"), pod("slow", "n2"))
	w.stuck["slow"] = true
	w.forbidden = apierrors.NewForbidden(schema.GroupResource{Resource: "nodes/status"}, "n1", errors.New("no"))
	got := w.run(t.Context(), "drain n1 n2 --timeout 5s")
	expect(t, "run", ran{
		Out: []string{
			"node/n1 cordoned", "node/n2 cordoned", "evicting pod web/a", "pod/a evicted", "node/n1 drained", "evicting pod web/slow", "node/n2 uncordoned",
		},
		ErrOut: []string{`Warning: setting conditions of node n1, nodes/status "n1" is forbidden: no`, "node/n2 not drained"},
		Error:  "draining node n2, its time is over and these pods are still there:\n  pod web/slow is still terminating",
	}, got)
}
