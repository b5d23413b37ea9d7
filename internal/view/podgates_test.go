// SPDX-License-Identifier: Apache-2.0

package view

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
)

// TestWhyPodsOnTheNode: a pod that blocks a node is told of it, whatever else keeps it back.
func TestWhyPodsOnTheNode(t *testing.T) {
	build := v1alpha1.PodsGate{Selector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "build"}}}
	ofCI, everywhere, unreadable := build, build, build
	ofCI.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "ci"}}
	everywhere.Scope = v1alpha1.PodsInCluster
	unreadable.Selector = metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Resembles"}}}
	gated := func(gates ...v1alpha1.PodsGate) func(*v1alpha1.NodeDisruptionBudget) {
		return func(b *v1alpha1.NodeDisruptionBudget) { b.Spec.Gates = &v1alpha1.Gates{Pods: gates} }
	}
	elsewhere := func(b *v1alpha1.NodeDisruptionBudget) {
		gated(build)(b)
		b.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"pool": "blue"}}
	}
	pod := func(namespace, name, app string) corev1.Pod {
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": app}}, Spec: corev1.PodSpec{NodeName: "n"}}
	}
	over := pod("ci", "over", "build")
	over.Status.Phase = corev1.PodSucceeded
	first := strategic(func(s *v1alpha1.Strategy) {
		s.Order = []v1alpha1.Order{{By: v1alpha1.OrderLabel, Key: "first", Values: []string{"yes"}}}
	})
	for name, tc := range map[string]struct {
		budget           func(*v1alpha1.NodeDisruptionBudget)
		pods             []corev1.Pod
		read, namespaces bool
		want             string
	}{
		"no gate":                          {budget: atMost(5), pods: []corev1.Pod{pod("ci", "a", "build")}},
		"of another budget":                {budget: elsewhere, pods: []corev1.Pod{pod("ci", "a", "build")}},
		"of the whole cluster":             {budget: gated(everywhere), pods: []corev1.Pod{pod("ci", "a", "build")}},
		"none":                             {budget: gated(build), read: true},
		"another":                          {budget: gated(build), pods: []corev1.Pod{pod("ci", "a", "web")}, read: true},
		"one that has ended":               {budget: gated(build), pods: []corev1.Pod{over}, read: true},
		"one":                              {budget: gated(build), pods: []corev1.Pod{pod("ci", "a", "build"), pod("ci", "b", "web")}, read: true, want: "budget all: pod ci/a is on it"},
		"by two gates":                     {budget: gated(build, build), pods: []corev1.Pod{pod("ci", "a", "build")}, read: true, want: "budget all: pod ci/a is on it"},
		"many":                             {budget: gated(build), pods: []corev1.Pod{pod("ci", "d", "build"), pod("ci", "c", "build"), pod("ci", "b", "build"), pod("ci", "a", "build")}, read: true, want: "budget all: pods ci/a, ci/b, ci/c and 1 more are on it"},
		"of a namespace":                   {budget: gated(ofCI), pods: []corev1.Pod{pod("ci", "a", "build")}, read: true, namespaces: true, want: "budget all: pod ci/a is on it"},
		"of another namespace":             {budget: gated(ofCI), pods: []corev1.Pod{pod("web", "a", "build")}, read: true, namespaces: true},
		"of a namespace that is not known": {budget: gated(ofCI), pods: []corev1.Pod{pod("new", "a", "build")}, read: true, namespaces: true, want: "budget all: pod new/a is on it"},
		"a gate that can't be read":        {budget: gated(unreadable), pods: []corev1.Pod{pod("ci", "a", "build")}, read: true},
	} {
		t.Run(name, func(t *testing.T) {
			m := aNode("m", func(n *corev1.Node) { n.Labels["first"] = "yes" })
			c := See([]upgradev1.Plan{aPlan(concurrency(1), first)}, []corev1.Node{m, aNode("n")}, []v1alpha1.NodeDisruptionBudget{aBudget(tc.budget)}, now)
			if pods, namespaces := c.PodGates("n"); pods != tc.read || namespaces != tc.namespaces {
				t.Errorf("pods must be read: %v, namespaces: %v", pods, namespaces)
			}
			c.PodsOnNodes(tc.pods, map[string]labels.Set{"ci": {"team": "ci"}, "web": {}})
			w, _ := c.Why("n")
			part := w.Rollouts[0]
			want := []v1alpha1.Reason{v1alpha1.ReasonMaxConcurrent}
			if tc.want != "" {
				want = append(want, v1alpha1.ReasonPodsBlock)
			}
			if got := refusals(&part); !slices.Equal(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
			i := slices.IndexFunc(part.Checks, func(c Check) bool { return c.Name == "gates" })
			if part.Checks[i].Message != tc.want {
				t.Errorf("got %q, want %q", part.Checks[i].Message, tc.want)
			}
			if pods, _ := c.PodGates("nowhere"); pods {
				t.Error("pods must be read of a node that is not there")
			}
		})
	}
}

// TestPreviewOfBlockedNodes: pods keep back each of the nodes that they are on, and the estimate says that it leaves them out.
func TestPreviewOfBlockedNodes(t *testing.T) {
	const want = "the time until budget all opens for some nodes (PodsBlock)"
	for _, blocked := range []int{1, 5} {
		p := measured(concurrency(9))
		budget := aBudget(func(b *v1alpha1.NodeDisruptionBudget) { b.Spec.Gates = &v1alpha1.Gates{Pods: []v1alpha1.PodsGate{{}}} })
		nodes := append(fleetOf(6), aNode("updated", labelled(hash)))
		c := See(nil, nodes, []v1alpha1.NodeDisruptionBudget{budget}, now)
		var pods []corev1.Pod
		for _, n := range append(nodes[:blocked:blocked], nodes[6]) {
			pods = append(pods, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "build"}, Spec: corev1.PodSpec{NodeName: n.Name}})
		}
		c.PodsOnNodes(pods, nil)
		v := c.Preview(&p, Supposition{})
		if !slices.Equal(v.Schedule.Without, []string{want}) {
			t.Errorf("left out is %q, want %q", v.Schedule.Without, want)
		}
		for _, s := range v.Steps {
			if is := s.Reason == v1alpha1.ReasonPodsBlock; is != (s.Node < nodes[blocked].Name) {
				t.Errorf("%d are blocked: %+v", blocked, s)
			}
		}
	}
}
