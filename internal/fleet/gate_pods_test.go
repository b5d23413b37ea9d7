// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/rollout"
)

func TestPodsGate(t *testing.T) {
	with := func(p *corev1.Pod, change func(*corev1.Pod)) *corev1.Pod {
		change(p)
		return p
	}
	const (
		onNode    = "[{selector: {matchLabels: {a: b}}}]"
		inCluster = "[{selector: {matchLabels: {a: b}}, scope: Cluster}]"
		byName    = "[{selector: {}, namespaceSelector: {matchLabels: {env: live}}, scope: Cluster}]"
	)
	for name, tc := range map[string]struct {
		gates   string
		objects []client.Object
		blocks  []string
		nodes   map[string]string
	}{
		"none": {gates: onNode, objects: []client.Object{pod("shop", "x", "n1")}},
		"on its node": {
			gates: onNode, objects: []client.Object{labelled(pod("shop", "x", "n1")), labelled(pod("shop", "y", "n2")), labelled(pod("shop", "z", "n2"))},
			nodes: map[string]string{"n1": "pod shop/x is on it", "n2": "pods shop/y, shop/z are on it"},
		},
		"many on a node": {
			gates:   onNode,
			objects: []client.Object{labelled(pod("s", "a", "n1")), labelled(pod("s", "b", "n1")), labelled(pod("s", "c", "n1")), labelled(pod("s", "d", "n1")), labelled(pod("s", "e", "n1"))},
			nodes:   map[string]string{"n1": "pods s/a, s/b, s/c and 2 more are on it"},
		},
		"on no node":        {gates: onNode, objects: []client.Object{labelled(pod("shop", "x", ""))}},
		"anywhere":          {gates: inCluster, objects: []client.Object{labelled(pod("shop", "x", "n1"))}, blocks: []string{"pod shop/x is there"}},
		"anywhere, nowhere": {gates: inCluster, objects: []client.Object{labelled(pod("shop", "x", ""))}, blocks: []string{"pod shop/x is there"}},
		"terminating": {
			gates: inCluster, objects: []client.Object{with(labelled(pod("shop", "x", "n1")), func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: morning} })},
			blocks: []string{"pod shop/x is there"},
		},
		"succeeded": {gates: inCluster, objects: []client.Object{with(labelled(pod("shop", "x", "n1")), func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })}},
		"failed":    {gates: onNode, objects: []client.Object{with(labelled(pod("shop", "x", "n1")), func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })}},
		"in another namespace": {
			gates: byName, objects: []client.Object{namespace("shop", map[string]string{"env": "test"}), pod("shop", "x", "n1")},
		},
		"in the namespace": {
			gates: byName, objects: []client.Object{pod("shop", "x", "n1"), namespace("shop", map[string]string{"env": "live"})},
			blocks: []string{"pod shop/x is there"},
		},
		"in a namespace of which nothing is known": {gates: byName, objects: []client.Object{pod("shop", "x", "n1")}, blocks: []string{"pod shop/x is there"}},
		"several": {
			gates:   "[{selector: {matchLabels: {a: b}}}, {selector: {matchLabels: {a: b}}, scope: Cluster}, {selector: {}}]",
			objects: []client.Object{labelled(pod("shop", "x", "n1")), pod("shop", "y", "n1")},
			blocks:  []string{"pod shop/x is there"}, nodes: map[string]string{"n1": "pods shop/x, shop/y are on it"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var blocks []rollout.Block
			for _, message := range tc.blocks {
				blocks = append(blocks, rollout.Block{Gate: v1alpha1.ReasonPodsBlock, Message: message})
			}
			var nodes map[string]rollout.Block
			for on, message := range tc.nodes {
				if nodes == nil {
					nodes = map[string]rollout.Block{}
				}
				nodes[on] = rollout.Block{Gate: v1alpha1.ReasonPodsBlock, Message: message}
			}
			// Whether the pods or the budget came first makes no difference.
			first := newBench(t).synced().sees(tc.objects...)
			then := newBench(t).synced()
			then.looks("{pods: " + tc.gates + "}")
			then.sees(tc.objects...)
			for _, b := range []*bench{first, then} {
				got := b.looks("{pods: " + tc.gates + "}")
				if diff := cmp.Diff(blocks, got.Blocks); diff != "" {
					t.Errorf("blocks (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(nodes, got.NodeBlocks); diff != "" {
					t.Errorf("nodes (-want +got):\n%s", diff)
				}
			}
		})
	}
}

// A pod that ends, moves from nowhere to a node, or gets other labels counts from then on, or no more.
func TestPodsGateNoticesChanges(t *testing.T) {
	b := newBench(t).synced()
	expect := func(want string) {
		t.Helper()
		if got := b.looks("{pods: [{selector: {matchLabels: {a: b}}}]}").NodeBlocks["n1"].Message; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	b.sees(labelled(pod("shop", "x", "")))
	expect("")
	b.sees(labelled(pod("shop", "x", "n1")))
	expect("pod shop/x is on it")
	b.sees(pod("shop", "x", "n1"))
	expect("")
	b.sees(labelled(pod("shop", "x", "n1")))
	expect("pod shop/x is on it")
	end := labelled(pod("shop", "x", "n1"))
	end.Status.Phase = corev1.PodSucceeded
	b.sees(end)
	expect("")
	b.sees(labelled(pod("shop", "x", "n1"))).loses(labelled(pod("shop", "x", "n1")))
	expect("")
}

func TestCountEvictions(t *testing.T) {
	yes := true
	owned := func(p *corev1.Pod, kind string) *corev1.Pod {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: "x", Controller: &yes}}
		return p
	}
	mirror := pod("a", "mirror", "n1")
	mirror.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "m"}
	local := owned(pod("a", "local", "n1"), "ReplicaSet")
	local.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	nodes := map[string]*rollout.Node{"n1": {}, "n2": {}, "n3": {}}

	b := newBench(t)
	expect := func(want map[string]int) {
		t.Helper()
		if diff := cmp.Diff(want, b.CountEvictions(nodes)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	b.sees(owned(pod("a", "x", "n1"), "ReplicaSet"), owned(pod("a", "y", "n1"), "StatefulSet"), owned(pod("a", "agent", "n1"), "DaemonSet"),
		mirror, local, pod("a", "bare", "n1"), owned(pod("a", "waits", ""), "ReplicaSet"), owned(pod("b", "x", "n2"), "Job"))
	expect(nil)
	if !b.gates.pods.wanted {
		t.Error("no one reads the pods")
	}
	b.synced()
	expect(map[string]int{"n1": 4, "n2": 1, "n3": 0})
	b.sees(owned(pod("a", "waits", "n3"), "ReplicaSet")).loses(local)
	expect(map[string]int{"n1": 3, "n2": 1, "n3": 1})
	b.loses(owned(pod("b", "x", "n2"), "Job"))
	expect(map[string]int{"n1": 3, "n2": 0, "n3": 1})
}

// BenchmarkLook is what the gates add to a decision: 50,000 pods and 5,000 workloads, of which few matter, while one pod
// that a gate selects comes and goes.
func BenchmarkLook(b *testing.B) {
	t := &testing.T{}
	w := newBench(t).synced()
	for i := range 50000 {
		w.sees(pod(fmt.Sprintf("ns-%d", i%500), fmt.Sprintf("pod-%d", i), fmt.Sprintf("node-%d", i%5000)))
	}
	for i := range 5000 {
		w.sees(deployment("a", fmt.Sprintf("d-%d", i), 2, int32(2+i%100/99)))
	}
	from := budgetWith(b, "{workloads: {selector: {matchLabels: {a: b}}}, pods: [{selector: {matchLabels: {a: b}}}, {selector: {matchLabels: {a: c}}, scope: Cluster}]}")
	one := labelled(pod("a", "x", "n1"))
	for name, churn := range map[string]bool{"quiet": false, "churn": true} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if churn {
					w.sees(one).loses(one)
				}
				w.Budget(from)
			}
		})
	}
}
