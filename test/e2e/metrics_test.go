// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"flag"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	upgradev1 "moult.dev/moult/api/upgrade/v1"
	"moult.dev/moult/api/v1alpha1"
)

var update = flag.Bool("update", false, "write the pages of metrics that test/alerts reads")

// The operator serves the metrics that the rules of alerts and the dashboards are tested with, in test/alerts: once while all is well, and once with a
// rollout that has failed, one that hangs, and one that waits for the budget. It does not run beside tests that restart the operator.
func TestMetrics(t *testing.T) {
	drained := takeMachines(t, 1)[0].Name()
	nodes := takeSimulated(t, 3)
	plan := func(name, node, how string) *upgradev1.Plan {
		p := newPlan(t, "metrics-"+name, "true")
		p.Spec.NodeSelector.MatchLabels[corev1.LabelHostname] = node
		p.Spec.Cordon = true
		if how != "" {
			simulate(p, how)
		}
		return p
	}
	d := deploy(t, "metrics-evicted", 1, 0, func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: drained}
	})
	b := newBudget(t, "metrics-budget")
	b.Spec.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{ // Not the node that fails, and keeps its claim.
		{Key: corev1.LabelHostname, Operator: metav1.LabelSelectorOpIn, Values: nodes[1:]},
	}}
	createBudget(t, b)
	well := plan("well", drained, "")
	well.Spec.Drain = &upgradev1.DrainSpec{}
	create(t, well)
	complete(t, well.Name)
	available(t, d, 1)
	compare(t, "well.txt", func(page string) bool {
		return strings.Contains(page, `moult_units{kind="Plan",name="metrics-well",namespace="system-upgrade",state="Updated"} 1`) &&
			strings.Contains(page, `moult_drain_duration_seconds_count{kind="Plan",name="metrics-well",namespace="system-upgrade",result="drained"} 1`) &&
			strings.Contains(page, `moult_budget_allowed{budget="metrics-budget"} 1`)
	})

	failed := plan("failed", nodes[0], "fail")
	failed.Spec.Strategy = &v1alpha1.Strategy{}
	create(t, failed)
	status(t, failed.Name, "failed", func(s *upgradev1.PlanStatus) bool { return s.Counts != nil && s.Counts.Failed == 1 })
	hangs := plan("hangs", nodes[1], "hang")
	create(t, hangs)
	status(t, hangs.Name, "hangs", func(s *upgradev1.PlanStatus) bool {
		return len(s.Updating) == 1 && s.Updating[0].Phase == v1alpha1.PhaseChanging
	})
	create(t, plan("waits", nodes[2], ""))
	waits(t, "metrics-waits", v1alpha1.ReasonBudgetExhausted)
	compare(t, "troubled.txt", func(page string) bool {
		return strings.Contains(page, `moult_rollout_stalled{kind="Plan",name="metrics-failed",namespace="system-upgrade"} 1`) &&
			strings.Contains(page, `moult_units_waiting{kind="Plan",name="metrics-waits",namespace="system-upgrade",reason="BudgetExhausted"} 1`) &&
			strings.Contains(page, `moult_turn_start_time_seconds{kind="Plan",name="metrics-hangs"`) &&
			strings.Contains(page, `moult_budget_allowed{budget="metrics-budget"} 0`)
	})
}

// compare waits until the page of metrics is as wanted, and compares its series with those of a file. Their values differ from run to run.
func compare(t *testing.T, file string, holds func(page string) bool) {
	t.Helper()
	var page string
	eventually(t, file, func(context.Context) (string, bool) {
		page = scraped(t)
		return page, holds(page)
	})
	path := filepath.Join("..", "alerts", "testdata", file)
	if *update {
		if err := os.WriteFile(path, []byte(page), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if want, got := series(string(want)), series(page); !slices.Equal(want, got) {
		t.Errorf("%s has other series than the operator; -update writes it.\nwant %s\ngot %s", path, strings.Join(want, "\n"), strings.Join(got, "\n"))
	}
}

// scraped is what the operator says of this test's rollouts and of itself.
func scraped(t *testing.T) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+world.metrics+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err.Error()
	}
	defer response.Body.Close()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(response.Body)
	if err != nil {
		return err.Error()
	}
	var page bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(families)) {
		f := families[name]
		mine := f.Metric[:0]
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				if l.GetName() == "goversion" {
					l.Value = new("go1.26.0")
				}
				labels[l.GetName()] = l.GetValue()
			}
			if isMine(name, labels) {
				mine = append(mine, m)
			}
		}
		if f.Metric = mine; len(mine) == 0 {
			continue
		}
		if _, err := expfmt.MetricFamilyToText(&page, f); err != nil {
			t.Fatal(err)
		}
	}
	return page.String()
}

// isMine reports whether the series is of this test's rollouts, or one that each operator has.
func isMine(name string, labels map[string]string) bool {
	switch name {
	case "moult_build_info", "moult_agent_policy_missing", "leader_election_master_status", "process_cpu_seconds_total", "process_resident_memory_bytes":
		return true
	case "moult_reconcile_errors_total": // There may be any, where the machine is slow.
		return false
	case "moult_eviction_duration_seconds":
		return labels["kind"] == "Plan"
	case "controller_runtime_reconcile_time_seconds":
		return strings.HasPrefix(labels["controller"], "plan")
	case "rest_client_requests_total":
		return labels["code"] == "200" && (labels["method"] == http.MethodGet || labels["method"] == http.MethodPatch)
	}
	return strings.HasPrefix(labels["name"], "metrics-") || strings.HasPrefix(labels["budget"], "metrics-")
}

var valueOf, varying = regexp.MustCompile(` [^ ]*$`), regexp.MustCompile(`(node|host)="[^"]*"`)

// series names the series of a page. Each run has other nodes.
func series(page string) (all []string) {
	for line := range strings.Lines(page) {
		if line = strings.TrimSpace(line); !strings.HasPrefix(line, "#") {
			all = append(all, varying.ReplaceAllString(valueOf.ReplaceAllString(line, ""), ""))
		}
	}
	return all
}
