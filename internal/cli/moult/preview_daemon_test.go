// SPDX-License-Identifier: Apache-2.0

package moult

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/ptr"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
	"moult.dev/moult/internal/view"
)

const daemonManifest = `
apiVersion: datadoghq.com/v1alpha1
kind: ExtendedDaemonSet
metadata: {name: exporter, namespace: fleet}
spec:
  template:
    spec:
      containers:
      - {name: exporter, image: "exporter:2", ports: [{containerPort: 9100}]}
  strategy:
    canary: {replicas: 2, duration: 30m, nodeAntiAffinityKeys: [topology.kubernetes.io/zone]}
    rollingUpdate: {maxUnavailable: 25%, slowStartAdditiveIncrease: 10}
    order: [{by: Label, key: kubernetes.io/hostname}]
`

// daemonInCluster is the manifest's ExtendedDaemonSet with another image, and its revision.
func daemonInCluster(t *testing.T, image string, change ...func(*edsv1.ExtendedDaemonSet)) []runtime.Object {
	t.Helper()
	all, err := new(previewCommand).parse(strings.NewReader(strings.ReplaceAll(daemonManifest, "exporter:2", image)))
	if err != nil {
		t.Fatal(err)
	}
	eds := all[0].object.(*edsv1.ExtendedDaemonSet)
	eds.UID, eds.Generation = "exporter", 1
	eds.Spec.Template.Spec.Containers[0].Ports[0].Protocol = corev1.ProtocolTCP
	eds.Status = edsv1.ExtendedDaemonSetStatus{
		ActiveReplicaSet: "exporter-a", ObservedGeneration: 1, Conditions: []edsv1.Condition{{Type: edsv1.ConditionReady, Status: metav1.ConditionTrue}},
	}
	for _, f := range change {
		f(eds)
	}
	rs := &edsv1.ExtendedDaemonSetReplicaSet{
		TypeMeta:   metav1.TypeMeta{APIVersion: edsv1.GroupVersion.String(), Kind: "ExtendedDaemonSetReplicaSet"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "exporter-a", UID: "a", Labels: map[string]string{edsv1.LabelName: "exporter"}},
		Spec:       edsv1.ExtendedDaemonSetReplicaSetSpec{Template: eds.Spec.Template, TemplateGeneration: view.RevisionOf(eds)},
	}
	var objects []runtime.Object
	for _, o := range []any{eds, rs} {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
		if err != nil {
			t.Fatal(err)
		}
		objects = append(objects, &unstructured.Unstructured{Object: content})
	}
	return objects
}

// daemonPods are pods of that revision.
func daemonPods(t *testing.T, objects []runtime.Object, nodes ...string) []runtime.Object {
	t.Helper()
	hash, _, _ := unstructured.NestedString(objects[1].(*unstructured.Unstructured).Object, "spec", "templateGeneration")
	var pods []runtime.Object
	for _, n := range nodes {
		pods = append(pods, previewPod(n, "exporter-a-"+n, func(p *corev1.Pod) {
			p.Namespace, p.Labels = "fleet", map[string]string{edsv1.LabelName: "exporter"}
			p.Annotations = map[string]string{edsv1.AnnotationTemplateHash: hash}
			p.OwnerReferences = []metav1.OwnerReference{{Kind: "ExtendedDaemonSetReplicaSet", Name: "exporter-a", Controller: ptr.To(true)}}
		}))
	}
	return pods
}

func zone(name string) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Labels[corev1.LabelTopologyZone] = name }
}

func TestPreviewDaemons(t *testing.T) {
	nodes := []runtime.Object{
		previewNode("a", zone("x")), previewNode("b", zone("x")), previewNode("c", zone("y")), previewNode("d", zone("y")),
		previewNode("e", zone("x"), func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: "gpu", Value: "yes", Effect: corev1.TaintEffectNoSchedule}}
		}),
	}
	file := func(c *previewCommand) { c.In, c.file, c.turn = strings.NewReader(daemonManifest), "-", 30*time.Second }
	there := daemonInCluster(t, "exporter:1")
	for name, tc := range map[string]struct {
		objects, pods []runtime.Object
		change        func(*previewCommand)
		args          []string
	}{
		"daemon-new":     {change: file},
		"daemon-changed": {objects: there, pods: daemonPods(t, there, "a", "b", "c", "d"), change: file},
		"daemon-same":    {objects: there, pods: daemonPods(t, there, "a", "b", "c", "d"), args: []string{"eds/exporter"}},
		"daemon-manual": {objects: there, pods: daemonPods(t, there, "a", "b", "c", "d"), change: func(c *previewCommand) {
			file(c)
			c.In = strings.NewReader(strings.ReplaceAll(daemonManifest, "duration: 30m", "validationMode: manual"))
		}},
		"daemon-invalid": {objects: there, change: func(c *previewCommand) {
			file(c)
			c.In = strings.NewReader(strings.ReplaceAll(daemonManifest, "25%", "0"))
		}},
		"daemon-on-delete": {objects: there, pods: daemonPods(t, there, "a", "b", "c"), change: func(c *previewCommand) {
			file(c)
			text := strings.ReplaceAll(daemonManifest, "  strategy:", "  strategy:\n    type: OnDelete")
			c.In = strings.NewReader(strings.ReplaceAll(text, "    canary: {replicas: 2, duration: 30m, nodeAntiAffinityKeys: [topology.kubernetes.io/zone]}\n", ""))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := preview(t, tc.objects, append(append([]runtime.Object{}, nodes...), tc.pods...), tc.change, tc.args...)
			if err != nil {
				t.Fatal(err)
			}
			golden(t, "preview/"+name, []byte(got))
		})
	}
}

func TestPreviewDaemonsFails(t *testing.T) {
	there := daemonInCluster(t, "exporter:1")
	both := append(daemonInCluster(t, "exporter:1", func(d *edsv1.ExtendedDaemonSet) { d.Name = "agents" })[:1:1], inCluster(t))
	for name, tc := range map[string]struct {
		objects []runtime.Object
		args    []string
		text    string
		want    string
	}{
		"unknown":          {args: []string{"eds/x"}, want: `ExtendedDaemonSet fleet/x not found`},
		"of the same name": {objects: both, args: []string{"agents"}, want: `several objects are named "agents": say plan/agents or eds/agents`},
		"unknown field":    {args: []string{"-"}, text: strings.Replace(daemonManifest, "maxUnavailable", "maxUnavailble", 1), want: `unknown field "spec.strategy.rollingUpdate.maxUnavailble"`},
		"nameless":         {args: []string{"-"}, text: strings.Replace(daemonManifest, "name: exporter, ", "", 1), want: "document 1: the ExtendedDaemonSet has no metadata.name"},
		"pods not seen":    {objects: there, args: []string{"exporter"}, want: "pods, revisions and settings of ExtendedDaemonSets can't all be listed"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := preview(t, tc.objects, []runtime.Object{previewNode("a")}, func(c *previewCommand) {
				c.In = strings.NewReader(tc.text)
				if name == "pods not seen" {
					c.src.Core = forbidden{c.src.Core}
				}
			}, tc.args...)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, want %s", err, tc.want)
			}
		})
	}
}

// forbidden lets no one list pods.
type forbidden struct{ typedcorev1.CoreV1Interface }

func (f forbidden) Pods(namespace string) typedcorev1.PodInterface {
	return noPods{f.CoreV1Interface.Pods(namespace)}
}

type noPods struct{ typedcorev1.PodInterface }

func (noPods) List(context.Context, metav1.ListOptions) (*corev1.PodList, error) {
	return nil, apierrors.NewForbidden(corev1.Resource("pods"), "", errors.New("no"))
}
