// SPDX-License-Identifier: Apache-2.0

package moult

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"moult.dev/moult/api/v1alpha1"
)

const machineManifest = `
apiVersion: moult.dev/v1alpha1
kind: NodeRollout
metadata: {name: workers}
spec:
  nodeSelector: {}
  strategy:
    order: [{by: Label, key: kubernetes.io/hostname}]
    waves:
    - {name: canary, size: 1, soak: 1h}
  drain: {timeout: 10m, onTimeout: Force, force: true}
  replacement: {provider: {aws: {}}, surge: 25%}
`

func TestPreviewMachines(t *testing.T) {
	machine := func(name string) *corev1.Node {
		return previewNode(name, func(n *corev1.Node) { n.Spec.ProviderID = "aws:///eu-central-1a/i-" + name })
	}
	objects := []runtime.Object{
		machine("a"), machine("b"), machine("c"), previewNode("plain"),
		previewPod("a", "cart-1"), previewPod("a", "bare-1", unmanaged), previewPod("a", "log-1", ofDaemonSet), previewPod("b", "cart-2"), podBudget("cart", "cart", 0),
	}
	there := func(change ...func(*v1alpha1.NodeRollout)) runtime.Object {
		all, err := new(previewCommand).parse(strings.NewReader(machineManifest))
		if err != nil {
			t.Fatal(err)
		}
		nr := all[0].object.(*v1alpha1.NodeRollout)
		nr.UID, nr.Status.Revision, nr.Status.TurnSeconds = "nr", "image-2", 300
		nr.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: metav1.ConditionFalse}}
		nr.Status.Counts = &v1alpha1.UnitCounts{Total: 3, Updated: 1, Waiting: 2}
		nr.Status.Waiting = []v1alpha1.UnitStatus{{Node: "a"}, {Node: "b", Reason: v1alpha1.ReasonMaxConcurrent}}
		nr.Status.ScaleSets = []v1alpha1.ScaleSetStatus{
			{Name: "workers", Capacity: 5, Machines: 5, Outdated: 2}, {Name: "gone", Reason: v1alpha1.ReasonScaleSetNotFound, Message: "there is no such group"},
		}
		for _, c := range change {
			c(nr)
		}
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(nr)
		if err != nil {
			t.Fatal(err)
		}
		return &unstructured.Unstructured{Object: content}
	}
	for name, tc := range map[string]struct {
		objects []runtime.Object
		file    string
		args    []string
	}{
		"machine-new":    {file: machineManifest},
		"machine-there":  {objects: []runtime.Object{there()}, args: []string{"nr/workers"}},
		"machine-in-two": {file: strings.Replace(machineManifest, "surge: 25%", "surge: 0, onFull: DeleteFirst", 1)},
		"machine-full":   {file: strings.Replace(machineManifest, "surge: 25%", "onFull: DeleteFirst", 1)},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := preview(t, tc.objects, objects, func(c *previewCommand) {
				if tc.file != "" {
					c.In, c.file, c.turn = strings.NewReader(tc.file), "-", 10*time.Minute
				}
			}, tc.args...)
			if err != nil {
				t.Fatal(err)
			}
			golden(t, "preview/"+name, []byte(got))
		})
	}
}
