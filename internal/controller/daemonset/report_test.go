// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/metrics"

	edsmetrics "moult.dev/moult/internal/metrics"
)

// The metric counts the nodes that wait for the canary, as the status lists them.
func TestMeasureCountsWhoWaitsForTheCanary(t *testing.T) {
	w := newWorld(3).trying().has("new", unready, 0).has("old", nil, 1, 2)
	p := w.begin(t, w.serve(t))
	p.StartCanary()
	p.JudgeCanaryPods()
	p.DecideCanary()
	p.Decide()
	p.Summarize("", nil)
	p.measure()
	t.Cleanup(func() { edsmetrics.ForgetDaemonSet(p.key) })
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	waiting := 0
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "moult_units_waiting" {
				waiting += int(m.GetGauge().GetValue())
			}
		}
	}
	if waiting != 2 || len(p.EDS.Status.Waiting) != 2 {
		t.Errorf("the metric counts %d, the status lists %+v", waiting, p.EDS.Status.Waiting)
	}
}
