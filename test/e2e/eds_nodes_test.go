// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
)

// TestDaemonsFollowNodes that come, go, or are selected no more. Another selector is no new revision.
func TestDaemonsFollowNodes(t *testing.T) {
	t.Parallel()
	d := newDaemons(t, "nodes", 2)
	active := d.start(t, canary, func(e *edsv1.ExtendedDaemonSet) {
		// A label of the ExtendedDaemonSet is not taken for its name. Nodes do not wait for reconcileFrequency.
		e.Labels = map[string]string{edsv1.LabelName: "another"}
		e.Spec.Strategy.ReconcileFrequency = &metav1.Duration{Duration: time.Hour}
	}).Status.ActiveReplicaSet
	before, first, kept := d.uids(t), d.nodes[0], d.nodes[1]
	d.addNode(t)
	d.settled(t)
	d.removeNode(t, first)
	d.settled(t)
	added := d.nodes[1]
	labelNode(t, added, "e2e.moult.dev/old", "true")
	d.edit(t, func(e *edsv1.ExtendedDaemonSet) {
		e.Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "e2e.moult.dev/old", Operator: metav1.LabelSelectorOpDoesNotExist}}
	})
	d.nodes = []string{kept}
	e := d.settled(t)
	d.unchanged(t, before, kept)
	if e.Status.ActiveReplicaSet != active || len(d.revisions(t)) != 1 {
		t.Errorf("revisions are %v, and %s is active, want %s", d.revisions(t), e.Status.ActiveReplicaSet, active)
	}
	d.disrupted(t, 0, 1, 0)
}

// TestDaemonsOverrides gives nodes other resources by annotations and by Settings. The annotation wins. Without either, nodes
// have the template's resources again.
func TestDaemonsOverrides(t *testing.T) {
	t.Parallel()
	d := newDaemons(t, "overrides", 3)
	cpu := func(quantity string) corev1.ResourceRequirements {
		return corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(quantity)}}
	}
	// requests waits until pods request this much, by node.
	requests := func(want ...string) {
		t.Helper()
		d.settled(t)
		eventually(t, fmt.Sprintf("pods request %v", want), func(context.Context) (string, bool) {
			var got []string
			for _, n := range d.nodes {
				p := d.podOn(t, n)
				if p == nil || !podReady(p) {
					return n + " has no pod", false
				}
				got = append(got, p.Spec.Containers[0].Resources.Requests.Cpu().String())
			}
			return fmt.Sprint(got), slices.Equal(got, want)
		})
	}
	annotate := func(value any) {
		t.Helper()
		key := edsv1.AnnotationResourcesPrefix + d.namespace + "." + agent + ".daemon"
		patchNode(t, d.nodes[0], map[string]any{"metadata": map[string]any{"annotations": map[string]any{key: value}}})
	}
	d.start(t, func(e *edsv1.ExtendedDaemonSet) { e.Spec.Template.Spec.Containers[0].Resources = cpu("10m") })
	since, before := d.now(t), d.uids(t)
	annotate(`{"requests":{"cpu":"20m"}}`)
	requests("20m", "10m", "10m")
	for _, n := range d.nodes[:2] {
		labelNode(t, n, "e2e.moult.dev/size", "large")
	}
	setting := &edsv1.ExtendedDaemonsetSetting{
		ObjectMeta: metav1.ObjectMeta{Name: "large", Namespace: d.namespace},
		Spec: edsv1.ExtendedDaemonsetSettingSpec{
			Reference:    &autoscalingv1.CrossVersionObjectReference{Kind: "ExtendedDaemonset", Name: agent},
			NodeSelector: metav1.LabelSelector{MatchLabels: map[string]string{"e2e.moult.dev/size": "large", target: labelOf(t)}},
			Containers:   []edsv1.ExtendedDaemonsetSettingContainerSpec{{Name: "daemon", Resources: cpu("30m")}},
		},
	}
	d.create(t, setting)
	requests("20m", "30m", "10m")
	eventually(t, "the Setting is valid", func(ctx context.Context) (string, bool) {
		err := d.Get(ctx, client.ObjectKeyFromObject(setting), setting)
		return fmt.Sprint(setting.Status, err), setting.Status.Status == edsv1.SettingValid
	})
	annotate(nil)
	requests("30m", "30m", "10m")
	if err := d.Delete(t.Context(), setting); err != nil {
		t.Fatal(err)
	}
	requests("10m", "10m", "10m")
	d.unchanged(t, before, d.nodes[2])
	made := map[types.UID]bool{}
	for _, c := range d.history(t) {
		if p, ok := c.object.(*corev1.Pod); ok {
			made[p.UID] = true
		}
	}
	if want := 3 + 1 + 1 + 1 + 2; len(made) != want {
		t.Errorf("%d pods were made, want %d: the first, and one for each change of a node's resources", len(made), want)
	}
	d.disrupted(t, since, 1, 0)
}
