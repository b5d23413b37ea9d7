// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"moult.dev/moult/api/v1alpha1"
)

// The times of the tests: what stands on the node was written before, what is written is written now.
var (
	before = metav1.Time{Time: noon.Add(-time.Hour)}
	now    = noon
)

func condition(kind corev1.NodeConditionType, status corev1.ConditionStatus, since, heartbeat metav1.Time, reason, message string) corev1.NodeCondition {
	return corev1.NodeCondition{
		Type: kind, Status: status, LastTransitionTime: since, LastHeartbeatTime: heartbeat, Reason: reason, Message: message,
	}
}

// was is a condition as it was written before, by Moult if the reason says so.
func was(kind corev1.NodeConditionType, status corev1.ConditionStatus, reason, message string) corev1.NodeCondition {
	return condition(kind, status, before, before, reason, message)
}

var ready = was(corev1.NodeReady, corev1.ConditionTrue, "KubeletReady", "kubelet is posting ready status")

// with makes a node that is ready, and has these conditions too.
func with(conditions ...corev1.NodeCondition) *corev1.Node {
	n := cordonable(false, "")
	n.Status.Conditions = append([]corev1.NodeCondition{ready}, conditions...)
	return n
}

// watched is a client that counts the patches of a Node's status.
func watched(n *corev1.Node, patches *int) client.Client {
	return fake.NewClientBuilder().WithObjects(n).WithStatusSubresource(n).WithInterceptorFuncs(interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			*patches++
			return c.SubResource(sub).Patch(ctx, obj, p, opts...)
		},
	}).Build()
}

func expectConditions(t *testing.T, want, got *corev1.Node) {
	t.Helper()
	byType := func(a, b corev1.NodeCondition) bool { return a.Type < b.Type }
	if diff := cmp.Diff(want.Status.Conditions, got.Status.Conditions, cmpopts.SortSlices(byType), cmp.Transformer("utc", metav1.Time.UTC)); diff != "" {
		t.Errorf("conditions (-want +got):\n%s", diff)
	}
}

const (
	maintenance = corev1.NodeMaintenanceInProgress
	draining    = corev1.NodeDrainInProgress
	drained     = corev1.NodeDrained
	yes, no     = corev1.ConditionTrue, corev1.ConditionFalse
)

func TestSetConditions(t *testing.T) {
	begin := []Condition{{maintenance, true, "maintained"}, {draining, true, "3 pods left"}, {drained, false, "not yet"}}
	for name, tc := range map[string]struct {
		by         string
		set        []Condition
		node, want *corev1.Node
		patches    int
	}{
		"the first": {plan, begin, with(), with(
			condition(maintenance, yes, now, now, v1alpha1.ReasonMaintenance, plan+": maintained"),
			condition(draining, yes, now, now, v1alpha1.ReasonMaintenance, plan+": 3 pods left"),
		), 1},
		"another message is no transition": {
			plan, []Condition{{draining, true, "2 pods left"}}, with(was(draining, yes, v1alpha1.ReasonMaintenance, plan+": 3 pods left")),
			with(condition(draining, yes, before, now, v1alpha1.ReasonMaintenance, plan+": 2 pods left")), 1,
		},
		"the same": {
			plan, begin, with(
				was(maintenance, yes, v1alpha1.ReasonMaintenance, plan+": maintained"),
				was(draining, yes, v1alpha1.ReasonMaintenance, plan+": 3 pods left"),
				was(drained, no, v1alpha1.ReasonMaintenance, plan+": not yet"),
			),
			with(
				was(maintenance, yes, v1alpha1.ReasonMaintenance, plan+": maintained"),
				was(draining, yes, v1alpha1.ReasonMaintenance, plan+": 3 pods left"),
				was(drained, no, v1alpha1.ReasonMaintenance, plan+": not yet"),
			), 0,
		},
		"the end": {
			plan, []Condition{{draining, false, "over"}, {drained, true, "drained"}},
			with(was(draining, yes, v1alpha1.ReasonMaintenance, plan+": 3 pods left"), was(drained, no, v1alpha1.ReasonMaintenance, other+": over")),
			with(condition(draining, no, now, now, v1alpha1.ReasonMaintenance, plan+": over"), condition(drained, yes, now, now, v1alpha1.ReasonMaintenance, plan+": drained")), 1,
		},
		"never over another's": {
			plan, []Condition{{maintenance, true, "maintained"}, {draining, true, "3 pods left"}, {drained, false, "over"}},
			with(was(maintenance, yes, "Rack42", "new disks"), was(drained, yes, "Kubectl", "by hand")),
			with(
				was(maintenance, yes, "Rack42", "new disks"),
				was(drained, yes, "Kubectl", "by hand"),
				condition(draining, yes, now, now, v1alpha1.ReasonMaintenance, plan+": 3 pods left"),
			), 1,
		},
		"over another's that is not true": {
			plan, []Condition{{maintenance, true, "maintained"}, {draining, true, "drains"}, {drained, false, "over"}},
			with(was(maintenance, no, "Rack42", "done"), was(draining, corev1.ConditionUnknown, "Lost", ""), was(drained, no, "Rack42", "done")),
			with(
				condition(maintenance, yes, now, now, v1alpha1.ReasonMaintenance, plan+": maintained"),
				condition(draining, yes, now, now, v1alpha1.ReasonMaintenance, plan+": drains"),
				was(drained, no, "Rack42", "done"),
			), 1,
		},
		"over another rollout's that has left it": {
			plan, []Condition{{draining, true, "drains"}}, with(was(draining, yes, v1alpha1.ReasonMaintenance, other+": drains")),
			with(condition(draining, yes, before, now, v1alpha1.ReasonMaintenance, plan+": drains")), 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			patches := 0
			c := watched(tc.node, &patches)
			given := read(t, c)
			unchanged := given.DeepCopy()
			if err := SetConditions(t.Context(), c, given, tc.by, now.Time, tc.set...); err != nil {
				t.Fatal(err)
			}
			expectConditions(t, tc.want, read(t, c))
			if patches != tc.patches {
				t.Errorf("%d patches", patches)
			}
			if diff := cmp.Diff(unchanged, given); diff != "" {
				t.Errorf("changed the object that it was given:\n%s", diff)
			}
		})
	}
}

func TestClearConditions(t *testing.T) {
	for name, tc := range map[string]struct {
		by         string
		node, want *corev1.Node
		patches    int
	}{
		"none":          {plan, with(), with(), 0},
		"none is true":  {plan, with(was(drained, no, v1alpha1.ReasonMaintenance, plan+": over")), with(was(drained, no, v1alpha1.ReasonMaintenance, plan+": over")), 0},
		"not another's": {plan, with(was(draining, yes, "Rack42", plan+": x")), with(was(draining, yes, "Rack42", plan+": x")), 0},
		"not another rollout's": {
			plan, with(was(draining, yes, v1alpha1.ReasonMaintenance, other+": x"), was(drained, yes, v1alpha1.ReasonMaintenance, plan+"-b: x")),
			with(was(draining, yes, v1alpha1.ReasonMaintenance, other+": x"), was(drained, yes, v1alpha1.ReasonMaintenance, plan+"-b: x")), 0,
		},
		"not what is no part of a turn": {
			plan, with(was("Sunny", yes, v1alpha1.ReasonMaintenance, plan+": x")), with(was("Sunny", yes, v1alpha1.ReasonMaintenance, plan+": x")), 0,
		},
		"all that are the rollout's": {
			plan, with(was(maintenance, yes, v1alpha1.ReasonMaintenance, plan+": x"), was(draining, no, v1alpha1.ReasonMaintenance, plan+": y"), was(drained, yes, v1alpha1.ReasonMaintenance, plan+": z")),
			with(
				condition(maintenance, no, now, now, v1alpha1.ReasonMaintenance, plan+": over"),
				was(draining, no, v1alpha1.ReasonMaintenance, plan+": y"),
				condition(drained, no, now, now, v1alpha1.ReasonMaintenance, plan+": over"),
			), 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			patches := 0
			c := watched(tc.node, &patches)
			if _, err := ClearConditions(t.Context(), c, read(t, c), tc.by, now.Time); err != nil {
				t.Fatal(err)
			}
			expectConditions(t, tc.want, read(t, c))
			if patches != tc.patches {
				t.Errorf("%d patches", patches)
			}
		})
	}
}

func TestConditionsThatCannotBeSet(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "nodes/status"}, "n1", errors.New("no"))
	n := with(was(draining, yes, v1alpha1.ReasonMaintenance, plan+": x"))
	c := fake.NewClientBuilder().WithObjects(n).WithStatusSubresource(n).WithInterceptorFuncs(interceptor.Funcs{
		SubResourcePatch: func(context.Context, client.Client, string, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
			return forbidden
		},
	}).Build()
	err := SetConditions(t.Context(), c, read(t, c), plan, now.Time, Condition{drained, true, "x"})
	if !apierrors.IsForbidden(err) || !strings.HasPrefix(err.Error(), "writing conditions of node n1, ") {
		t.Errorf("got %v", err)
	}
	_, err = ClearConditions(t.Context(), c, read(t, c), plan, now.Time)
	if !apierrors.IsForbidden(err) || !strings.HasPrefix(err.Error(), "writing conditions of node n1, ") {
		t.Errorf("got %v", err)
	}
}
