// SPDX-License-Identifier: Apache-2.0

package daemonset

import "testing"

// BenchmarkPass is what one look at an ExtendedDaemonSet costs beside the lists and the writes, while a rollout is half done.
func BenchmarkPass(b *testing.B) {
	const nodes = 1000
	w := newWorld(nodes)
	for i := range nodes {
		w.has([]string{"old", "new"}[i%2], nil, i)
	}
	facts := w.facts(b)
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
