// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"moult.dev/moult/api/v1alpha1"
)

// BenchmarkDecide decides for a fleet of ten thousand nodes: with neither strategy nor budgets, with three budgets, and
// with these, waves and an order; when nothing is started yet, when half is updated, and when nothing is left to do.
func BenchmarkDecide(b *testing.B) {
	const nodes = 10_000
	for _, how := range []string{"plain", "budgets", "strategy and budgets"} {
		for name, done := range map[string]int{"nothing started": 0, "half updated": nodes / 2, "nothing to do": nodes} {
			b.Run(how+"/"+name, func(b *testing.B) {
				s, f := Strategy{MaxConcurrent: 50}, Fleet{Nodes: make(map[string]*Node, nodes)}
				if how == "strategy and budgets" {
					s = New(strategyOf(b, `
maxConcurrent: 50
order: [{by: Zone}, {by: Label, key: pool, values: [web, db]}]
waves:
- {name: canary, size: 10, nodeSelector: {matchLabels: {pool: web}}}
- {name: tenth, size: 10%, soak: 1h}`), 1, nodes)
				}
				if how != "plain" {
					f.Budgets = []Budget{
						budget(b, "{maxUnavailable: 1%, minReadySeconds: 60}"),
						budget(b, "{selector: {matchLabels: {pool: web}}, maxUnavailable: 30, topologyKey: topology.kubernetes.io/zone, maxDomains: 1}"),
						budget(b, "{selector: {matchExpressions: [{key: pool, operator: NotIn, values: [web]}]}, gates: {alerts: {url: 'http://p'}, nodes: {absentTaints: ['readiness.k8s.io/*']}}}"),
					}
				}
				s.UID, s.Revision, s.Shared, s.Windows = own, "v1", true, []CronWindow{*cronWindow(b, "0 0 * * *", 24*time.Hour, "Europe/Berlin")}
				if done > 0 {
					s.Wave = &v1alpha1.WaveStatus{Name: remainder, Number: 3, Revision: "v1", State: v1alpha1.WaveProgressing}
				}
				units := make([]Unit, 0, nodes)
				for i := range nodes {
					node := fmt.Sprintf("node-%05d", i)
					m := machine{
						labels: map[string]string{
							"pool": []string{"web", "db", "batch"}[i%3], corev1.LabelTopologyZone: string('a' + rune(i%4)), corev1.LabelHostname: node,
							corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
						},
						readySince: noon.Add(-time.Hour), cordoned: i%400 == 0,
					}
					if i%100 == 0 {
						m.claims = []v1alpha1.Claim{shared("other")}
					}
					n := m.node(node)
					n.readiness = n.ready()
					f.Nodes[node] = n
					state := v1alpha1.UnitOutdated
					if i < done {
						state = v1alpha1.UnitUpdated
					}
					units = append(units, unit(node, state, ranked(Rank(types.UID(node), own, "v1"))))
				}
				b.ReportAllocs()
				for b.Loop() {
					if d := Decide(s, units, f, noon); len(d.Start)+len(d.Waiting) != nodes-done {
						b.Fatalf("started %d, and %d wait", len(d.Start), len(d.Waiting))
					}
				}
			})
		}
	}
}
