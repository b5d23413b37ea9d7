// SPDX-License-Identifier: Apache-2.0

package ksmetrics

import (
	"context"
	"errors"
	"flag"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	edsv1 "moult.dev/moult/api/datadoghq/v1alpha1"
)

var update = flag.Bool("update", false, "write what is got as what is wanted")

var created = metav1.NewTime(time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC))

func newReader(t *testing.T, objects ...client.Object) client.Reader {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := edsv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
}

func meta(namespace, name string, labels map[string]string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, CreationTimestamp: created, Labels: labels}
}

func serve(r client.Reader, leads bool) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	New(r, func() bool { return leads }).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/ksmetrics", nil))
	return w
}

// TestGolden compares a whole page, which has each metric, with each label that it may have.
func TestGolden(t *testing.T) {
	r := newReader(t,
		&edsv1.ExtendedDaemonSet{
			ObjectMeta: meta("b", "plain", nil),
			Status:     edsv1.ExtendedDaemonSetStatus{State: edsv1.StateRolloutFrozen},
		},
		&edsv1.ExtendedDaemonSet{
			ObjectMeta: meta("a", "failed", map[string]string{"app.kubernetes.io/name": "x", "team": "infra", "name": "y"}),
			Status: edsv1.ExtendedDaemonSetStatus{
				State: edsv1.StateRollingUpdatePaused,
				Conditions: []edsv1.Condition{
					{Type: edsv1.ConditionCanaryFailed, Status: metav1.ConditionTrue, Reason: edsv1.ReasonCanaryFailed},
					{Type: edsv1.ConditionCanaryPaused, Status: metav1.ConditionTrue, Reason: "OOMKilled"},
				},
			},
		},
		&edsv1.ExtendedDaemonSet{
			ObjectMeta: meta("a", "canary", nil),
			Status: edsv1.ExtendedDaemonSetStatus{
				Desired: 6, Current: 5, Ready: 4, Available: 3, UpToDate: 2, IgnoredUnresponsiveNodes: 1, State: edsv1.StateCanary,
				Canary: &edsv1.ExtendedDaemonSetStatusCanary{ReplicaSet: "canary-2", Nodes: []string{"n1", "n2"}},
			},
		},
		&edsv1.ExtendedDaemonSet{
			ObjectMeta: meta("a", "paused", nil),
			Status: edsv1.ExtendedDaemonSetStatus{
				State:      edsv1.StateCanaryPaused,
				Canary:     &edsv1.ExtendedDaemonSetStatusCanary{ReplicaSet: "paused-2", Nodes: []string{"n1"}},
				Conditions: []edsv1.Condition{{Type: edsv1.ConditionCanaryPaused, Status: metav1.ConditionTrue, Reason: `he said "no" \o/` + "\n"}},
			},
		},
		&edsv1.ExtendedDaemonSetReplicaSet{
			ObjectMeta: meta("a", "canary-2", map[string]string{edsv1.LabelName: "canary"}),
			Status: edsv1.ExtendedDaemonSetReplicaSetStatus{
				Status: edsv1.ReplicaSetCanary, Desired: 5, Current: 4, Ready: 3, Available: 2, IgnoredUnresponsiveNodes: 1,
			},
		},
		&edsv1.ExtendedDaemonSetReplicaSet{
			ObjectMeta: meta("a", "failed-2", nil),
			Status: edsv1.ExtendedDaemonSetReplicaSetStatus{
				Status:     edsv1.ReplicaSetCanaryFailed,
				Conditions: []edsv1.Condition{{Type: edsv1.ConditionCanaryFailed, Status: metav1.ConditionTrue, Reason: edsv1.ReasonManuallyFailed}},
			},
		},
	)
	w := serve(r, true)
	if w.Code != http.StatusOK || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain; version=0.0.4; charset=utf-8") {
		t.Errorf("got %d %s", w.Code, w.Header().Get("Content-Type"))
	}
	file := filepath.Join("testdata", "page.txt")
	if *update {
		if err := os.WriteFile(file, w.Body.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), w.Body.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	tabled(t, w.Body)
}

// tabled compares the table of the page's metrics, which the documents contain.
func tabled(t *testing.T, page io.Reader) {
	t.Helper()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(page)
	if err != nil {
		t.Fatal(err)
	}
	got := "| metric | type | labels | meaning |\n|---|---|---|---|\n"
	for _, name := range slices.Sorted(maps.Keys(families)) {
		labels := map[string]bool{}
		for _, m := range families[name].GetMetric() {
			for _, l := range m.GetLabel() {
				labels["`"+l.GetName()+"`"] = true
			}
		}
		list := strings.Join(slices.Sorted(maps.Keys(labels)), ", ")
		if strings.HasSuffix(name, "_labels") {
			list = "`name`, `namespace`, and each label of the object"
		}
		got += "| `" + name + "` | gauge | " + list + " | " + families[name].GetHelp() + " |\n"
	}
	file := filepath.Join("testdata", "metrics.md")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Whatever the objects say, Prometheus can read it, and finds their values.
func TestPrometheusReadsIt(t *testing.T) {
	w := serve(newReader(t, &edsv1.ExtendedDaemonSet{
		ObjectMeta: meta("a", "d", map[string]string{"a.b/c-d": "1", "a-b/c.d": "2", "a_b_c_d": "3", "namespace": "4", "9": "5"}),
	}), false)
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, l := range families["eds_labels"].GetMetric()[0].GetLabel() {
		got[l.GetName()] = l.GetValue()
	}
	want := map[string]string{
		"namespace": "a", "name": "d", "_9": "5", "a_b_c_d": "3",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	leader := families["eds_controller_leader"].GetMetric()[0]
	if l := leader.GetLabel()[0]; l.GetName() != "leader" || l.GetValue() != "false" || leader.GetGauge().GetValue() != 1 {
		t.Errorf("got %v", leader)
	}
}

type broken struct{ client.Reader }

func (broken) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return errors.New("the cache is not started")
}

// Nothing at all is better than a page that lacks half of the objects.
func TestUnreadable(t *testing.T) {
	w := serve(broken{}, true)
	if got := strings.TrimSpace(w.Body.String()); w.Code != http.StatusServiceUnavailable || got != "listing daemon sets and replica sets, the cache is not started" {
		t.Errorf("got %d %q", w.Code, got)
	}
}
