// SPDX-License-Identifier: Apache-2.0

package turn

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// A drain is measured once, when it is done, and so are the answers to its evictions and the time that its pods take to end.
func TestDrainIsMeasured(t *testing.T) {
	d := newDrain(t, nodeA(corev1.ConditionTrue, now), onNode("first"), onNode("second"))
	d.Kind, d.Engine.Clock = "Measured", d.clock
	d.begin()
	d.pass(now)
	deleted := metav1.NewTime(now.Add(30 * time.Second))
	d.at(now.Add(4 * time.Second))
	d.podEnded(onNode("first", func(p *corev1.Pod) { p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &deleted, ptr.To[int64](30) }))
	d.podEnded(onNode("unasked"))
	for range 2 {
		d.Works.Changed("a")
		if o := d.pass(now); !o.Done {
			t.Fatalf("%+v", o)
		}
	}
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range families {
		for _, m := range f.GetMetric() {
			text := strings.TrimPrefix(f.GetName(), "moult_")
			for _, l := range m.GetLabel() {
				text += " " + l.GetValue()
			}
			if strings.Contains(text, "Measured") {
				h := m.GetHistogram()
				got = append(got, fmt.Sprintf("%s %.0f %d %.0f", text, m.GetCounter().GetValue(), h.GetSampleCount(), h.GetSampleSum()))
			}
		}
	}
	want := []string{
		"drain_duration_seconds Measured os  drained 0 1 4",
		"eviction_duration_seconds Measured 0 1 4",
		"evictions_total Measured os  blocked 0 0 0", "evictions_total Measured os  evicted 2 0 0", "evictions_total Measured os  failed 0 0 0",
	}
	if !slices.Equal(want, got) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
