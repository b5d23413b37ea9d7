// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	clocktesting "k8s.io/utils/clock/testing"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/internal/turn"
)

// BenchmarkPass is what one look at a Plan costs beside the lists and the writes, while a rollout is half done.
func BenchmarkPass(b *testing.B) {
	for _, nodes := range []int{100, 1000, 5000} {
		b.Run(fmt.Sprintf("%d nodes", nodes), func(b *testing.B) {
			w := newWorld(newPlan(func(p *upgradev1.Plan) { p.Spec.Concurrency = 50 }))
			objects := make([]*corev1.Node, nodes)
			for i := range objects {
				n := newNode(fmt.Sprintf("node-%04d", i))
				ready(now.Add(-time.Hour))(n)
				switch {
				case i < nodes/2:
					labelled(hash)(n)
				case i < nodes/2+50:
					c := claimed()
					c.Attempt = w.Attempt(n)
					holding(c)(n)
				}
				objects[i] = n
			}
			s := snapshotOf(objects...)
			for _, n := range objects[nodes/2 : min(nodes, nodes/2+50)] {
				s.jobs[n.Name] = append(s.jobs[n.Name], newTurnJob(w.Plan, n))
			}
			c := &Controller{Engine: turn.NewEngine(kind, clocktesting.NewFakePassiveClock(now), nil, nil, nil, nil, nil)}
			b.ReportAllocs()
			for b.Loop() {
				p := c.newPass(w, s)
				p.Decide(s.Fleet)
				p.count()
				if got := w.Plan.Status.Counts; got.Updating != int32(min(50, nodes/2)) || len(p.Decision.Start) > 0 {
					b.Fatalf("%+v, starting %v", got, p.Decision.Start)
				}
			}
		})
	}
}
