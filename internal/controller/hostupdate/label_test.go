// SPDX-License-Identifier: Apache-2.0

package hostupdate

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"moult.dev/moult/api/v1alpha1"
)

func TestLabelNodes(t *testing.T) {
	const label, optOut = "bottlerocket.aws/updater-interface-version", "noderollout.moult.dev/r"
	const labelThar = "thar.amazonaws.com/platform-version"
	newNode := func(name string, nodeLabels map[string]string) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: nodeLabels}}
		n.Status.NodeInfo.OSImage = "Bottlerocket OS 1.20.3 (aws-k8s-1.30)"
		return n
	}
	for name, enabled := range map[string]bool{"enabled": true, "disabled": false} {
		t.Run(name, func(t *testing.T) {
			nodes := []*corev1.Node{
				newNode("selected", map[string]string{"pool": "a"}),
				newNode("labelled", map[string]string{"pool": "a", label: "1.0.0"}),
				newNode("opted-out", map[string]string{"pool": "a", optOut: v1alpha1.LabelNodeRolloutDisabled}),
				newNode("elsewhere", map[string]string{"pool": "b"}),
				newNode("thar", map[string]string{"pool": "a"}),
			}
			nodes[4].Status.NodeInfo.OSImage = "Thar, The Operating System (0.2.1)" // as the last of Dogswatch's time
			c := fake.NewClientBuilder().Build()
			for i, n := range nodes {
				if err := c.Create(t.Context(), n); err != nil {
					t.Fatal(err)
				}
				nodes[i] = n.DeepCopy()
			}
			r := newRollout(func(r *v1alpha1.NodeRollout) {
				r.Name, r.Spec.HostUpdate.LabelNodes, r.Spec.NodeSelector.MatchLabels = "r", enabled, map[string]string{"pool": "a"}
			})
			p := newTestController(t, c).newPass(r, nil, snapshotOf())
			if err := p.labelNodes(t.Context(), nodes); err != nil {
				t.Fatal(err)
			}
			var all corev1.NodeList
			if err := c.List(t.Context(), &all); err != nil {
				t.Fatal(err)
			}
			got := map[string]string{}
			for i := range all.Items {
				for _, key := range []string{label, labelThar} {
					if value := all.Items[i].Labels[key]; value != "" {
						got[all.Items[i].Name] = key + "=" + value
					}
				}
			}
			want := map[string]string{"labelled": label + "=1.0.0"}
			if enabled {
				want["selected"], want["thar"] = label+"=2.0.0", labelThar+"=1.0.0"
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("labels (-want +got)\n%s", diff)
			}
		})
	}
	t.Run("changed meanwhile", func(t *testing.T) {
		n := newNode("n", nil)
		c := fake.NewClientBuilder().WithObjects(n).Build()
		p := newTestController(t, c).newPass(newRollout(func(r *v1alpha1.NodeRollout) { r.Spec.HostUpdate.LabelNodes = true }), nil, snapshotOf())
		n.ResourceVersion = "1"
		if err := p.labelNodes(t.Context(), []*corev1.Node{n}); err == nil {
			t.Error("a Node that has changed is labelled")
		}
	})
}
