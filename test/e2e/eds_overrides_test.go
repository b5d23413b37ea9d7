// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
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

// cpu is a resource requirement.
func cpu(quantity string) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(quantity)}}
}

// cpus waits until the pods of an ExtendedDaemonSet ask for this much, by node, and are all available.
func (d *daemons) cpus(t *testing.T, name string, want ...string) {
	t.Helper()
	d.until(t, name, fmt.Sprintf("asks for %v", want), func(e *edsv1.ExtendedDaemonSet) bool {
		pods := d.pods(t, name)
		ok := len(pods) == len(want) && e.Status.State == edsv1.StateRunning && int(e.Status.Available) == len(want) && int(e.Status.UpToDate) == len(want)
		for i := range pods {
			q := pods[i].Spec.Containers[0].Resources.Requests[corev1.ResourceCPU]
			ok = ok && podAvailable(&pods[i]) && q.String() == want[i]
		}
		return ok
	})
}

// overridden nodes have other resources by their annotations and by settings, by both without an end of it, and by none again.
func overridden(t *testing.T, d *daemons) {
	d.start(t, d.daemon("agent", func(e *edsv1.ExtendedDaemonSet) { e.Spec.Template.Spec.Containers[0].Resources = cpu("10m") }))
	since, began := d.now(t), time.Now()
	before := d.uids(t, "agent")
	override := func(node string, value any) {
		t.Helper()
		key := edsv1.AnnotationResourcesPrefix + d.namespace + ".agent.daemon"
		patchNode(t, node, map[string]any{"metadata": map[string]any{"annotations": map[string]any{key: value}}})
	}
	t.Cleanup(func() {
		for _, node := range d.nodes {
			override(node, nil)
		}
	})
	stays := func(what string) map[string]types.UID {
		t.Helper()
		uids := d.uids(t, "agent")
		lasts(t, 3*time.Second, what, func(context.Context) error {
			for node, uid := range d.uids(t, "agent") {
				if uids[node] != uid {
					return fmt.Errorf("%w on %s", errReplaced, node)
				}
			}
			return nil
		})
		return uids
	}

	override(d.nodes[0], `{"requests":{"cpu":"20m"}}`)
	d.cpus(t, "agent", "20m", "10m", "10m")
	if p := d.podOn(t, "agent", d.nodes[0]); p.Annotations[edsv1.AnnotationNodeHash] == "" {
		t.Errorf("the pod with a node's resources has annotations %v", p.Annotations)
	}
	for _, node := range d.nodes[:2] {
		labelNode(t, node, "e2e.moult.dev/size", "large")
	}
	setting := &edsv1.ExtendedDaemonsetSetting{
		ObjectMeta: metav1.ObjectMeta{Name: "large", Namespace: d.namespace},
		Spec: edsv1.ExtendedDaemonsetSettingSpec{
			Reference:    &autoscalingv1.CrossVersionObjectReference{Kind: "ExtendedDaemonset", Name: "agent"},
			NodeSelector: metav1.LabelSelector{MatchLabels: map[string]string{"e2e.moult.dev/size": "large", target: d.selector.MatchLabels[target]}},
			Containers:   []edsv1.ExtendedDaemonsetSettingContainerSpec{{Name: "daemon", Resources: cpu("30m")}},
		},
	}
	d.create(t, setting)
	// The annotation wins where there are both.
	d.cpus(t, "agent", "20m", "30m", "10m")
	eventually(t, "the setting is valid", func(ctx context.Context) (string, bool) {
		err := d.Get(ctx, client.ObjectKeyFromObject(setting), setting)
		return fmt.Sprint(setting.Status, err), setting.Status.Status == edsv1.SettingValid
	})
	if p := d.podOn(t, "agent", d.nodes[1]); p.Labels[edsv1.LabelSettingName] != "large" || p.Labels[edsv1.LabelSettingNamespace] != d.namespace {
		t.Errorf("the pod with a setting's resources has labels %v", p.Labels)
	}
	if uids := stays("nothing is replaced again"); uids[d.nodes[2]] != before[d.nodes[2]] {
		t.Errorf("the pod on %s, which nothing overrides, was replaced", d.nodes[2])
	}

	override(d.nodes[0], nil)
	d.cpus(t, "agent", "30m", "30m", "10m")
	if p := d.podOn(t, "agent", d.nodes[0]); p.Annotations[edsv1.AnnotationNodeHash] != "" {
		t.Errorf("the pod without a node's resources has annotations %v", p.Annotations)
	}
	if err := d.Delete(t.Context(), setting); err != nil {
		t.Fatal(err)
	}
	d.cpus(t, "agent", "10m", "10m", "10m")
	for _, p := range d.pods(t, "agent") {
		if p.Labels[edsv1.LabelSettingName] != "" {
			t.Errorf("pod %s still names a setting", p.Name)
		}
	}
	// What can't be read overrides nothing, and leaves no node without a pod.
	override(d.nodes[2], "{")
	stays("nothing is replaced endlessly")
	d.cpus(t, "agent", "10m", "10m", "10m")
	override(d.nodes[2], nil)
	d.settled(t, "agent")
	if down := d.mostDown(t, since, of("agent")); down > 1 && !d.faltered(t, began) {
		t.Errorf("%d nodes were without a pod at once", down)
	}
	if n := len(creations(d.history(t), "agent")); n > 3+4+3+2 {
		t.Errorf("%d pods were made", n)
	}
	d.onePerNode(t, "agent")
}

// labelNode labels a node until the test ends.
func labelNode(t *testing.T, node, key, value string) {
	t.Helper()
	set := func(to any) {
		t.Helper()
		patchNode(t, node, map[string]any{"metadata": map[string]any{"labels": map[string]any{key: to}}})
	}
	set(value)
	t.Cleanup(func() { set(nil) })
}

// excluded is a node whose label the template's affinity excludes: it has no pod, as long as it has the label.
func excluded(t *testing.T, d *daemons) {
	const exclude = "extendeddaemonset.datadoghq.com/exclude"
	d.start(t, d.daemon("agent", func(e *edsv1.ExtendedDaemonSet) {
		e.Spec.Template.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: exclude, Operator: corev1.NodeSelectorOpNotIn, Values: []string{"agent"}}},
			}}},
		}}
	}))
	before := d.uids(t, "agent")
	labelNode(t, d.nodes[0], exclude, "agent")
	d.on(d.nodes[1:]...).settled(t, "agent")
	labelNode(t, d.nodes[0], exclude, "another")
	d.settled(t, "agent")
	for _, node := range d.nodes[1:] {
		if d.uids(t, "agent")[node] != before[node] {
			t.Errorf("the pod on %s was replaced", node)
		}
	}
	d.onePerNode(t, "agent")
}
