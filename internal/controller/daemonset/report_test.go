// SPDX-License-Identifier: Apache-2.0

package daemonset

import (
	"strings"
	"testing"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
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

// A reconcile judges all Settings that name the ExtendedDaemonSet, and writes each verdict once. TestJudgeSettings proves the verdicts.
func TestReportSettings(t *testing.T) {
	w := newWorld(2)
	c := w.serve(t)
	for _, n := range w.nodes {
		if err := c.client.Create(t.Context(), n); err != nil {
			t.Fatal(err)
		}
	}
	setting := func(namespace, name, of string, age time.Duration, selects map[string]string) *edsv1.ExtendedDaemonsetSetting {
		s := &edsv1.ExtendedDaemonsetSetting{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, CreationTimestamp: ago(age)}}
		s.Spec.Reference = &autoscalingv1.CrossVersionObjectReference{Kind: "ExtendedDaemonSet", Name: of}
		s.Spec.NodeSelector.MatchLabels = selects
		if err := c.client.Create(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		return s
	}
	// says reconciles twice, and compares the status. The second reconcile writes nothing.
	says := func(want string, of *edsv1.ExtendedDaemonsetSetting) {
		t.Helper()
		versions := [2]string{}
		for i := range versions {
			if _, err := c.reconcile(t.Context(), client.ObjectKeyFromObject(w.eds)); err != nil && !apierrors.IsConflict(err) {
				t.Fatal(err)
			}
			if err := c.client.Get(t.Context(), client.ObjectKeyFromObject(of), of); err != nil {
				t.Fatal(err)
			}
			versions[i] = of.ResourceVersion
		}
		if got := strings.TrimSpace(string(of.Status.Status) + " " + of.Status.Error); got != want || versions[0] != versions[1] {
			t.Errorf("%s says %q, want %q; it is written as %v", of.Name, got, want, versions)
		}
	}
	old := setting("ns", "old", "foo", time.Hour, nil)
	says("valid", old)
	far, other := setting("elsewhere", "far", "foo", 0, nil), setting("ns", "other", "bar", 0, nil)
	says("valid", old)
	says("", far)
	says("", other)
	young := setting("ns", "young", "foo", time.Minute, map[string]string{corev1.LabelHostname: "n1"})
	says("error conflict with another ExtendedDaemonsetSetting: young", old)
	says("valid", young)
	if err := c.client.Delete(t.Context(), w.nodes[1]); err != nil {
		t.Fatal(err)
	}
	says("valid", old)
}
