// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/clock"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/internal/events"
	"moult.dev/moult/internal/metrics"
)

// measured are the series of the Plan with these metrics, by their labels besides the Plan's.
func measured(t *testing.T, names ...string) string {
	t.Helper()
	families, err := ctrlmetrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, f := range families {
		for _, m := range f.GetMetric() {
			line := strings.TrimPrefix(f.GetName(), "moult_")
			for _, l := range m.GetLabel() {
				if !slices.Contains([]string{"kind", "namespace", "name"}, l.GetName()) {
					line += " " + l.GetValue()
				}
			}
			if slices.Contains(names, f.GetName()) {
				value := m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
				lines = append(lines, fmt.Sprintf("%s %.0f", line, value))
			}
		}
	}
	return strings.Join(lines, "; ")
}

// Each Node has one Event at the end of its turn, and the Plan has those that name several nodes. Metrics show the turns in progress, and how turns ended.
func TestReconcileIsObserved(t *testing.T) {
	metrics.Forget(metrics.Rollout{Kind: "Plan", NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}})
	c := newCluster(t, append(threeNodes(), newPlan(one))...)
	api := fake.NewClientset()
	recorder := events.NewRecorder(t.Context(), clock.RealClock{}, api.CoreV1().Events(""), c.Scheme(), "suc", "n1")
	c.Controller = c.newController(recorder)
	const turns, stalled, failures, durations = "moult_turn_start_time_seconds", "moult_rollout_stalled", "moult_turn_failures_total", "moult_turn_duration_seconds"

	c.reconciles()
	first := slices.Collect(maps.Keys(c.jobs()))[0]
	want := fmt.Sprintf("rollout_stalled 0; turn_start_time_seconds %s %d", first, now.Unix())
	if got := measured(t, turns, stalled, failures, durations); got != want {
		t.Errorf("in a turn: %s, want %s", got, want)
	}
	c.passes(time.Minute)
	c.ends(first, succeeded)
	secrets := func(named ...upgradev1.SecretSpec) { c.change(func(p *upgradev1.Plan) { p.Spec.Secrets = named }) }
	secrets(upgradev1.SecretSpec{Name: "missing"})
	if got := measured(t, turns); got != "" {
		t.Errorf("while the Plan is not ready: %s, want no turn", got)
	}
	secrets()
	c.reconciles()
	second := strings.TrimPrefix(c.plan().Status.Applying[0], "host-")
	c.ends(second, failed)
	c.passes(time.Minute)
	c.reconciles()
	want = "rollout_stalled 1; turn_duration_seconds failed 1; turn_duration_seconds updated 1; turn_failures_total JobFailed 1"
	if got := measured(t, turns, stalled, failures, durations); got != want {
		t.Errorf("after the turns: %s, want %s", got, want)
	}

	recorder.Shutdown(t.Context())
	list, err := api.CoreV1().Events("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, e := range list.Items {
		if e.InvolvedObject.Kind == "Node" {
			got[e.InvolvedObject.Name] = e.Reason + " of " + e.Related.Kind + " " + e.Related.Name
		} else if e.Reason == "JobComplete" {
			got[e.InvolvedObject.Name] = e.Message
		}
	}
	told := map[string]string{
		first: "NodeUpdated of Plan k3s", second: "NodeUpdateFailed of Plan k3s", "k3s": "Job completed on Nodes " + first,
	}
	if diff := cmp.Diff(told, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
