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

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
)

const hostManifest = `
apiVersion: moult.dev/v1alpha1
kind: NodeRollout
metadata: {name: bottlerocket}
spec:
  nodeSelector: {}
  strategy:
    order: [{by: Label, key: kubernetes.io/hostname}]
    waves:
    - {name: canary, size: 1, soak: 1h}
  drain: {timeout: 10m, onTimeout: Skip, deleteEmptyDirData: false}
  hostUpdate: {}
`

// hostInCluster is the manifest's NodeRollout as a cluster has it, whose turns take five minutes.
func hostInCluster(t *testing.T, change ...func(*v1alpha1.NodeRollout)) *unstructured.Unstructured {
	t.Helper()
	all, err := new(previewCommand).parse(strings.NewReader(hostManifest))
	if err != nil {
		t.Fatal(err)
	}
	nr := all[0].object.(*v1alpha1.NodeRollout)
	nr.UID, nr.Status.Revision, nr.Status.TurnSeconds = "nr", "1.20.3", 300
	nr.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: metav1.ConditionFalse}}
	for _, c := range change {
		c(nr)
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(nr)
	if err != nil {
		t.Fatal(err)
	}
	return &unstructured.Unstructured{Object: content}
}

// aHost is a node with a host that runs a version and has another one to offer, if any.
func previewHost(name, version, target string) *corev1.Node {
	p := v1alpha1.HostProtocols[0]
	return previewNode(name, func(n *corev1.Node) {
		n.Labels[p.InterfaceLabel] = v1alpha1.InterfaceUpdateAPI
		n.Annotations = map[string]string{
			p.Wanted: "stabilize", p.Active: "stabilize", p.State: "ready", p.Update: "false", v1alpha1.AnnotationHostVersion: version,
		}
		if target != "" {
			n.Annotations[p.Update], n.Annotations[v1alpha1.AnnotationHostTarget] = "true", target
		}
	})
}

func TestPreviewHosts(t *testing.T) {
	nodes := []runtime.Object{previewHost("a", "1.19.0", "1.20.3"), previewHost("b", "1.19.0", "1.20.3"), previewHost("c", "1.20.3", ""), previewNode("plain")}
	pods := []runtime.Object{
		previewPod("a", "cart-1"), previewPod("a", "cache-1", withLocalData), previewPod("a", "bare-1", unmanaged), previewPod("a", "log-1", ofDaemonSet),
		previewPod("a", "moult-1", func(p *corev1.Pod) { p.Labels[upgradev1.LabelController] = "system-upgrade-controller" }), previewPod("b", "cart-2"), podBudget("cart", "cart", 0),
	}
	file := func(text string) func(*previewCommand) {
		return func(c *previewCommand) { c.In, c.file, c.turn = strings.NewReader(text), "-", 10*time.Minute }
	}
	for name, tc := range map[string]struct {
		objects, pods []runtime.Object
		change        func(*previewCommand)
		args          []string
	}{
		"host-new":   {pods: pods, change: file(hostManifest)},
		"host-there": {objects: []runtime.Object{hostInCluster(t)}, args: []string{"nr/bottlerocket"}},
		"host-other-version": {
			objects: []runtime.Object{hostInCluster(t)},
			change:  file(strings.ReplaceAll(strings.ReplaceAll(hostManifest, "hostUpdate: {}", "hostUpdate: {version: v1.19.0}"), "timeout: 10m, onTimeout: Skip", "disabled: true")),
		},
		"host-waits": {
			pods:   []runtime.Object{pods[0], pods[len(pods)-1]},
			change: file(strings.ReplaceAll(hostManifest, "  drain: {timeout: 10m, onTimeout: Skip, deleteEmptyDirData: false}\n", "")),
		},
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

func TestPreviewHostsFails(t *testing.T) {
	there := hostInCluster(t)
	for name, tc := range map[string]struct {
		objects []runtime.Object
		args    []string
		text    string
		want    string
	}{
		"unknown":          {args: []string{"nr/x"}, want: `NodeRollout x not found`},
		"of the same name": {objects: []runtime.Object{hostInCluster(t, func(nr *v1alpha1.NodeRollout) { nr.Name = "agents" }), inCluster(t)}, args: []string{"agents"}, want: `several objects are named "agents": say plan/agents or nr/agents`},
		"unknown field":    {args: []string{"-"}, text: strings.Replace(hostManifest, "hostUpdate: {}", "hostUpdate: {versions: x}", 1), want: `unknown field "spec.hostUpdate.versions"`},
		"nameless":         {args: []string{"-"}, text: strings.Replace(hostManifest, "name: bottlerocket", "", 1), want: "document 1: the NodeRollout has no metadata.name"},
		"no such pods": {objects: []runtime.Object{there}, args: []string{"-"}, text: strings.Replace(hostManifest, "timeout: 10m", "podSelector: {matchExpressions: [{key: a, operator: Equals}]}, timeout: 10m", 1),
			want: "spec.drain.podSelector is invalid, "},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := preview(t, tc.objects, []runtime.Object{previewHost("a", "1.19.0", "1.20.3")}, func(c *previewCommand) { c.In = strings.NewReader(tc.text) }, tc.args...)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, want %s", err, tc.want)
			}
		})
	}
}
