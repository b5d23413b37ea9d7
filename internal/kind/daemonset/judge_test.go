// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// BenchmarkPass is what one look at an ExtendedDaemonSet costs beside the lists and the writes, while a rollout is half done.
func BenchmarkPass(b *testing.B) {
	const nodes = 1000
	w := newWorld(nodes)
	for i := range nodes {
		w.has([]string{"old", "new"}[i%2], nil, i)
	}
	facts := w.facts(b)
	slices.SortFunc(facts.Nodes, func(a, b *corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	for b.Loop() {
		j, err := New(facts, now)
		if err != nil {
			b.Fatal(err)
		}
		if err := j.Survey(nil); err != nil {
			b.Fatal(err)
		}
		j.Decide()
		j.Summarize("", nil)
	}
}

// A preview surveys the same facts twice.
func TestSurveyTwice(t *testing.T) {
	w := newWorld(2).has("new", nil, 0).has("new", going, 1)
	w.nodes = w.nodes[:1]
	j := w.begin(t)
	if err := j.Survey(j.CanaryNodes()); err != nil {
		t.Fatal(err)
	}
	if len(j.States) != 1 || len(j.Orphans) > 0 {
		t.Errorf("got %d nodes, and %d pods on other nodes", len(j.States), len(j.Orphans))
	}
}
