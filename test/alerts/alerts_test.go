// SPDX-License-Identifier: Apache-2.0

// Package alerts tests the chart's alert rules and dashboards with Prometheus itself. Their data are pages of metrics: those that the operator served
// in test/e2e (TestMetrics), and those of internal/metrics and internal/ksmetrics, which have every metric.
package alerts

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/rules"
	"github.com/prometheus/prometheus/tsdb"
)

// The pages of metrics.
const (
	well       = "testdata/well.txt"
	troubled   = "testdata/troubled.txt"
	collectors = "../../internal/metrics/testdata/page.txt"
	daemons    = "../../internal/ksmetrics/testdata/page.txt"

	files    = "../../charts/moult/files/"
	interval = time.Minute // of scrapes, and of the rules
)

// began is when the first scrape is. The turns of the pages begin then, too.
var began = time.Unix(1_800_000_000, 0)

// server is a Prometheus without a network.
type server struct {
	*testing.T
	db     *tsdb.DB
	engine *promql.Engine
}

func newServer(t *testing.T) *server {
	t.Helper()
	db, err := tsdb.Open(t.TempDir(), slog.New(slog.DiscardHandler), nil, tsdb.DefaultOptions(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return &server{T: t, db: db, engine: promql.NewEngine(promql.EngineOpts{MaxSamples: 10_000_000, Timeout: time.Minute})}
}

// sample is a series of a page, as one target has it, with its value. A counter grows by its value with each scrape, as if what the page
// shows happened again.
type sample struct {
	labels labels.Labels
	value  float64
	grows  bool
}

// read reads a page. change changes each sample, unless it is nil.
func read(t *testing.T, page string, change func(*sample)) (all []sample) {
	t.Helper()
	file, err := os.Open(page)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	text := expfmt.NewTextParser(model.LegacyValidation)
	families, err := text.TextToMetricFamilies(file)
	if err != nil {
		t.Fatal(err)
	}
	samples, err := expfmt.ExtractSamples(&expfmt.DecodeOptions{}, slices.Collect(maps.Values(families))...)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range samples {
		b := labels.NewBuilder(labels.EmptyLabels())
		b.Set("job", "moult").Set("instance", "operator:8080")
		for name, value := range s.Metric {
			b.Set(string(name), string(value))
		}
		name := string(s.Metric[model.MetricNameLabel])
		grows := slices.ContainsFunc([]string{"_total", "_count", "_sum", "_bucket"}, func(end string) bool { return strings.HasSuffix(name, end) })
		one := sample{b.Labels(), float64(s.Value), grows}
		if name == "moult_turn_start_time_seconds" {
			one.value = float64(began.Unix())
		}
		if change != nil {
			change(&one)
		}
		all = append(all, one)
	}
	return all
}

// scrape stores what scrape number i of the target gets, and returns its time.
func (s *server) scrape(i int, all []sample) time.Time {
	s.Helper()
	at := began.Add(time.Duration(i) * interval)
	a := s.db.Appender(s.Context())
	for _, sample := range all {
		value := sample.value
		if sample.grows {
			value *= float64(i + 1)
		}
		if _, err := a.Append(0, sample.labels, at.UnixMilli(), value); err != nil {
			s.Fatal(err)
		}
	}
	if err := a.Commit(); err != nil {
		s.Fatal(err)
	}
	return at
}

// fires scrapes a target and evaluates the rules for so long. It returns the alerts that fire at the end, each with its kind, name, budget and job.
func (s *server) fires(all []sample, lasting time.Duration) (fired []string) {
	s.Helper()
	m := rules.NewManager(&rules.ManagerOptions{
		QueryFunc: rules.EngineQueryFunc(s.engine, s.db), AppendableV2: s.db, Queryable: s.db, Context: s.Context(), Logger: slog.New(slog.DiscardHandler),
		NotifyFunc: func(context.Context, string, ...*rules.Alert) {},
	})
	groups, errs := m.LoadGroups(interval, labels.EmptyLabels(), "", nil, false, files+"alerts.yaml")
	if len(errs) > 0 {
		s.Fatal(errs)
	}
	for i := range int(lasting / interval) {
		at := s.scrape(i, all)
		for _, g := range groups {
			g.Eval(s.Context(), at)
			for _, r := range g.Rules() {
				if r.LastError() != nil {
					s.Fatalf("%s: %v", r.Name(), r.LastError())
				}
			}
		}
	}
	for _, g := range groups {
		for _, r := range g.AlertingRules() {
			for _, a := range r.ActiveAlerts() {
				if a.State != rules.StateFiring {
					continue
				}
				text := r.Name()
				for _, name := range []string{"kind", "name", "budget", "job"} {
					if value := a.Labels.Get(name); value != "" {
						text += " " + value
					}
				}
				a.Annotations.Range(func(l labels.Label) {
					if l.Value == "" || strings.Contains(l.Value, "<no value>") || strings.Contains(l.Value, "<error") || strings.Contains(l.Value, "{{") {
						s.Errorf("%s has annotation %s: %s", text, l.Name, l.Value)
					}
				})
				for _, name := range []string{"summary", "description", "runbook"} {
					if !a.Annotations.Has(name) {
						s.Errorf("%s has no annotation %s", text, name)
					}
				}
				fired = append(fired, text)
			}
		}
	}
	slices.Sort(fired)
	return fired
}

// set sets the value of a metric.
func set(metric string, value float64) func(*sample) {
	return func(s *sample) {
		if s.labels.Get(labels.MetricName) == metric {
			s.value = value
		}
	}
}

// Every rule fires where it is provoked, and nowhere else.
func TestAlerts(t *testing.T) {
	fired := map[string]bool{}
	for name, tc := range map[string]struct {
		page   string
		change func(*sample)
		last   time.Duration
		want   []string
	}{
		"a run in which all is well": {page: well, last: 6 * time.Hour},
		"no operator":                {last: 15 * time.Minute, want: []string{"MoultOperatorAbsent"}},
		"no operator, for a moment":  {last: 5 * time.Minute},
		"a run with a Plan that failed, one that hangs, and one that waits for the budget of the latter": {page: troubled, last: 6 * time.Hour, want: []string{
			"MoultBudgetExhausted metrics-budget",
			"MoultNodeClaimedTooLong Plan metrics-hangs",
			"MoultNodesFailed Plan metrics-failed",
			"MoultRolloutHalted Plan metrics-failed",
			"MoultRolloutStuck Plan metrics-hangs",
			"MoultRolloutStuck Plan metrics-waits",
		}},
		"the same in its first minutes": {page: troubled, last: 4 * time.Minute},
		"no leader":                     {page: well, change: set("leader_election_master_status", 0), last: time.Hour, want: []string{"MoultNoLeader moult"}},
		"no policy":                     {page: well, change: set("moult_agent_policy_missing", 1), last: time.Hour, want: []string{"MoultAgentPolicyMissing moult"}},
		"a rollout that waits for its approval is not stuck": {page: troubled, last: 6 * time.Hour, change: func(s *sample) {
			if s.labels.Get("reason") == "BudgetExhausted" {
				s.labels = labels.NewBuilder(s.labels).Set("reason", "WaitingForApproval").Labels()
			}
		}, want: []string{
			"MoultNodeClaimedTooLong Plan metrics-hangs", "MoultNodesFailed Plan metrics-failed", "MoultRolloutHalted Plan metrics-failed",
			"MoultRolloutStuck Plan metrics-hangs",
		}},
		"errors": {page: collectors, last: time.Hour, want: []string{
			"MoultAgentPolicyMissing moult",
			"MoultNodesFailed ExtendedDaemonSet agent", "MoultNodesFailed NodeRollout bottlerocket", "MoultNodesFailed Plan k3s",
			"MoultReconcileErrors ExtendedDaemonSet agent", "MoultReconcileErrors NodeRollout bottlerocket", "MoultReconcileErrors Plan k3s",
			"MoultRolloutHalted NodeRollout bottlerocket",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			var all []sample
			if tc.page != "" {
				all = read(t, tc.page, tc.change)
			}
			got := s.fires(all, tc.last)
			if !slices.Equal(tc.want, got) {
				t.Errorf("fires\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(tc.want, "\n"))
			}
			for _, text := range got {
				name, _, _ := strings.Cut(text, " ")
				fired[name] = true
			}
		})
	}
	text, err := os.ReadFile(files + "alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "- alert: "); ok && !fired[name] {
			t.Errorf("no test provokes %s", name)
		}
	}
}

// Every query of every panel gets data, with every metric and a rollout of a real run.
func TestDashboards(t *testing.T) {
	s := newServer(t)
	var all []sample
	for _, page := range []string{collectors, troubled, daemons} {
		all = append(all, read(t, page, func(s *sample) {
			s.labels = labels.NewBuilder(s.labels).Set("instance", page).Labels() // Each page is of another target.
		})...)
	}
	var last time.Time
	for i := range int(2 * time.Hour / interval) {
		last = s.scrape(i, all)
	}
	dashboards, err := filepath.Glob(files + "dashboards/*.json")
	if err != nil || len(dashboards) == 0 {
		t.Fatal(dashboards, err)
	}
	for _, path := range dashboards {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var d struct {
			UID, Title string
			Panels     []struct {
				Title, Type string
				Targets     []struct{ Expr string }
			}
		}
		if err := json.Unmarshal(text, &d); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		for _, panel := range d.Panels {
			for _, target := range panel.Targets {
				// What Grafana puts in place of its variables.
				expr := strings.NewReplacer("$__rate_interval", "5m", "$kind", "Plan", "$namespace", "system-upgrade", "$name", "k3s").Replace(target.Expr)
				q, err := s.engine.NewInstantQuery(t.Context(), s.db, nil, expr, last)
				if err != nil {
					t.Errorf("%s, %s: %v", d.Title, panel.Title, err)
					continue
				}
				v, err := q.Exec(t.Context()).Vector()
				if err != nil {
					t.Errorf("%s, %s: %s: %v", d.Title, panel.Title, expr, err)
				}
				if !slices.ContainsFunc(v, func(p promql.Sample) bool { return !math.IsNaN(p.F) }) {
					t.Errorf("%s, %s has no data: %s: %v", d.Title, panel.Title, expr, v)
				}
				q.Close()
			}
			if panel.Type != "row" && len(panel.Targets) == 0 {
				t.Errorf("%s, %s has no query", d.Title, panel.Title)
			}
		}
	}
}
