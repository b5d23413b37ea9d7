// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

func TestOrder(t *testing.T) {
	elsewhere := func(p *corev1.Pod) { p.Namespace = "db" }
	pods := []corev1.Pod{
		pod("batch", withPriority(-10)),
		pod("z", elsewhere),
		pod("a"),
		pod("b", withPriority(0)),
		pod("important", withPriority(1000)),
		pod("dns", withPriority(2_000_000_000)),
		pod("net", withPriority(2_000_001_000)),
	}
	want := []string{"batch", "z", "a", "b", "important", "dns", "net"}
	r := rand.New(rand.NewPCG(7, 7))
	for range 20 {
		r.Shuffle(len(pods), func(i, j int) { pods[i], pods[j] = pods[j], pods[i] })
		var got []string
		for _, v := range Filter(pods, Facts{}, Options{}) {
			got = append(got, v.Pod.Name)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatal(diff)
		}
	}
}
