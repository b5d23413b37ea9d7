// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// A DaemonSet keeps the pods that it would make again, and those alone.
func TestMakesAgain(t *testing.T) {
	n := newNode(0)
	for name, tc := range map[string]struct {
		change func(*appsv1.DaemonSet, *corev1.Node)
		node   string
		want   bool
	}{
		"as it is": {func(*appsv1.DaemonSet, *corev1.Node) {}, n.Name, true},
		"it does not bear the node's taint any more": {func(_ *appsv1.DaemonSet, n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: "a", Effect: corev1.TaintEffectNoSchedule}}
		}, n.Name, false},
		"a cordoned node": {func(_ *appsv1.DaemonSet, n *corev1.Node) {
			n.Spec.Unschedulable = true
			n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}}
		}, n.Name, true},
		"it selects others": {func(ds *appsv1.DaemonSet, _ *corev1.Node) {
			ds.Spec.Template.Spec.NodeSelector = map[string]string{"a": "b"}
		}, n.Name, false},
		"a node that nobody knows": {func(*appsv1.DaemonSet, *corev1.Node) {}, "gone", true},
	} {
		ds, node := &appsv1.DaemonSet{}, n.DeepCopy()
		tc.change(ds, node)
		if got := makesAgain(ds, []*corev1.Node{node})(tc.node); got != tc.want {
			t.Errorf("%s: got %t", name, got)
		}
	}
}
