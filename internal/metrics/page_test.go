// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"moult.dev/moult/api/v1alpha1"
)

var update = flag.Bool("update", false, "write what is got as what is wanted")

// fill sets every metric as an operator of a small fleet would.
func fill() {
	SetBuildInfo("v1.2.3")
	SetLeader(true)
	plan := Rollout{Kind: "Plan", NamespacedName: types.NamespacedName{Namespace: "system-upgrade", Name: "k3s"}}
	hosts := Rollout{Kind: "NodeRollout", NamespacedName: types.NamespacedName{Name: "bottlerocket"}}
	agent := DaemonSet(types.NamespacedName{Namespace: "monitoring", Name: "agent"})
	began := metav1.Time{Time: time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)}
	for _, r := range []Rollout{plan, hosts, agent} {
		SetUnits(r, map[v1alpha1.UnitState]int{v1alpha1.UnitUpdated: 5, v1alpha1.UnitUpdating: 1, v1alpha1.UnitOutdated: 3, v1alpha1.UnitFailed: 1},
			map[v1alpha1.Reason]int{v1alpha1.ReasonMaxConcurrent: 2, v1alpha1.ReasonBudgetExhausted: 1})
		SetStalled(r, r == hosts)
		CountError(r)
	}
	for _, r := range []Rollout{plan, hosts} {
		SetTurns(r, []v1alpha1.UnitStatus{{Node: "node-6", Since: &began}})
		ObserveTurn(r, 90*time.Second)
		ObserveFailure(r, v1alpha1.ReasonDrainTimeout, 10*time.Minute)
		ObserveDrain(r, "drained", 20*time.Second)
		ObserveDrain(r, "failed", 10*time.Minute)
		CountEvictions(r, "evicted", 7)
		CountEvictions(r, "blocked", 2)
		CountEvictions(r, "failed", 0)
		ObservePodEnd(r.Kind, 3*time.Second)
	}
	SetStuck(agent.NamespacedName, map[string]bool{"agent-1": true})
	SetBudget("workers", &v1alpha1.NodeDisruptionBudgetStatus{
		Matched: 10, Unavailable: 2, Allowed: ptr.To[int32](0), BlockedBy: []v1alpha1.BudgetBlock{{Gate: v1alpha1.ReasonAlertsActive}},
	})
	CountNotification("ops", "Halted", "sent")
	CountNotification("ops", "Done", "failed")
	SetNotificationsInvalid(false)
	SetAgentPolicyMissing(true)
	SetHostVersions(hosts.Name, []v1alpha1.HostVersion{{Version: "1.20.3", Nodes: 5}, {Version: "1.20.2", Nodes: 5}})
	ObserveReboot(hosts.Name, 45*time.Second)
	SetMachines("pool", "workers", map[string]int{"Running": 9, "Creating": 1}, 4)
	ObservePhase("pool", v1alpha1.MachineDraining, time.Minute)
	ObserveCloudCall("aws", "List", "ok", 200*time.Millisecond)
	ObserveCloudCall("aws", "Delete", "Throttled", time.Second)
}

// The page has every metric of this package. Documents and the tests of alerts and dashboards read it.
func TestPage(t *testing.T) {
	fill()
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	own := families[:0]
	for _, f := range families {
		if slices.ContainsFunc([]string{"moult_", "eds_", "ers_"}, func(p string) bool { return strings.HasPrefix(f.GetName(), p) }) {
			own = append(own, f)
		}
	}
	var page bytes.Buffer
	table, named := "| metric | type | labels | meaning |\n|---|---|---|---|\n", map[string]bool{}
	for _, f := range own {
		if _, err := expfmt.MetricFamilyToText(&page, f); err != nil {
			t.Fatal(err)
		}
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, "`"+l.GetName()+"`")
		}
		table += fmt.Sprintf("| `%s` | %s | %s | %s |\n", f.GetName(), strings.ToLower(f.GetType().String()), strings.Join(labels, ", "), f.GetHelp())
		named[f.GetName()] = true
	}
	text := strings.ReplaceAll(page.String(), runtime.Version(), "go1.26.0")
	for file, got := range map[string]string{"page.txt": text, "metrics.md": table} {
		path := filepath.Join("testdata", file)
		if *update {
			if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("%s; -update writes it (-want +got):\n%s", path, diff)
		}
	}
	all := make(chan *prometheus.Desc, 1000)
	metrics.Registry.(prometheus.Collector).Describe(all)
	close(all)
	for d := range all {
		name, _, _ := strings.Cut(strings.TrimPrefix(d.String(), `Desc{fqName: "`), `"`)
		if strings.HasPrefix(name, "moult_") && !named[name] {
			t.Errorf("%s is not in the page: let fill set it", name)
		}
	}
}
