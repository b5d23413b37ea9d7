// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

func TestDaemonOptions(t *testing.T) {
	o, err := parse([]string{"--kind", "daemonset", "--nodes", "500", "--opened"})
	if err != nil || o.kind != kindDaemonSet || o.daemons.maxUnavailable() != "100%" || o.daemons.mayLose(500) != 500 {
		t.Errorf("got %+v, %v", o, err)
	}
	o, err = parse([]string{"--kind", "daemonset"})
	if err != nil || o.daemons.maxUnavailable() != "10%" || o.daemons.mayLose(999) != 100 || o.daemons.churned(999) != 50 || o.idle != time.Minute {
		t.Errorf("got %+v, %v", o, err)
	}
	for _, args := range [][]string{{"--kind", "pod"}, {"--churn", "101"}, {"--churn", "-1"}, {"--idle", "-1s"}, {"--start-seconds", "-1"}} {
		if o, err := parse(args); err == nil {
			t.Errorf("%q is %+v", args, o)
		}
	}
}

func TestGoes(t *testing.T) {
	for _, test := range []struct {
		n, of int
		want  string
	}{
		{1, 4, "...x"}, {2, 4, ".x.x"}, {3, 10, "...x..x..x"}, {4, 4, "xxxx"}, {0, 3, "..."},
	} {
		got := ""
		for i := range test.of {
			if goes(i, test.n, test.of) {
				got += "x"
			} else {
				got += "."
			}
		}
		if got != test.want {
			t.Errorf("%d of %d: got %s, want %s", test.n, test.of, got, test.want)
		}
	}
}

func TestPodTally(t *testing.T) {
	pod := func(name, node, image string, ready, leaving bool) *corev1.Pod {
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Image: image}}},
		}
		if ready {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		}
		if leaving {
			p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
		}
		return p
	}
	tally := newPodTally()
	tally.expect("v1", []string{"a", "b", "c"})
	steps := []struct {
		kind watch.EventType
		pod  *corev1.Pod
		want podCounts
	}{
		{watch.Added, pod("a1", "", "v1", false, false), podCounts{0, 0, 3, 1}},
		{watch.Added, pod("b1", "b", "v1", false, false), podCounts{0, 0, 3, 2}},
		{watch.Modified, pod("a1", "a", "v1", false, false), podCounts{0, 0, 3, 2}},
		{watch.Modified, pod("a1", "a", "v1", true, false), podCounts{1, 1, 3, 2}},
		{watch.Modified, pod("b1", "b", "v1", true, false), podCounts{2, 2, 3, 2}},
		{watch.Added, pod("c1", "c", "v1", true, false), podCounts{3, 3, 3, 2}},
		{watch.Added, pod("z1", "z", "v1", true, false), podCounts{3, 3, 3, 2}}, // There should be none.
	}
	for i, s := range steps {
		tally.see(s.kind, s.pod)
		if got := tally.counts(); got != s.want {
			t.Errorf("step %d: got %+v, want %+v", i+1, got, s.want)
		}
	}
	tally.expect("v2", []string{"a", "b", "z"})
	if got, want := tally.counts(), (podCounts{0, 3, 0, 0}); got != want {
		t.Errorf("of the update: got %+v, want %+v", got, want)
	}
	for i, s := range []struct {
		kind watch.EventType
		pod  *corev1.Pod
		want podCounts
	}{
		{watch.Modified, pod("a1", "a", "v1", true, true), podCounts{0, 2, 1, 0}},
		{watch.Added, pod("a2", "a", "v2", false, false), podCounts{0, 2, 1, 1}},
		{watch.Deleted, pod("a1", "a", "v1", true, true), podCounts{0, 2, 1, 1}},
		{watch.Modified, pod("b1", "b", "v1", true, true), podCounts{0, 1, 2, 1}},
		{watch.Modified, pod("a2", "a", "v2", true, false), podCounts{1, 2, 2, 1}},
	} {
		tally.see(s.kind, s.pod)
		if got := tally.counts(); got != s.want {
			t.Errorf("step %d of the update: got %+v, want %+v", i+1, got, s.want)
		}
	}
	if len(tally.problems) != 0 {
		t.Errorf("problems: %v", tally.problems)
	}
	tally.see(watch.Added, pod("a3", "a", "v2", false, false))
	if got := tally.counts(); got.done != 0 || len(tally.problems) != 1 {
		t.Errorf("a node with two pods: got %+v, %v", got, tally.problems)
	}
}

// sampleDaemons is what a run over so many nodes might have found out.
func sampleDaemons(size int) *daemonsMeasured {
	of := func(name string, factor int) *daemonMeasured {
		d := &daemonMeasured{name: name, peak: int64(factor) * 32 << 20}
		for _, stage := range []string{stageCreate, stageUpdate, stageChurn} {
			d.phases = append(d.phases, &daemonPhase{
				name: stage, pods: size, took: time.Duration(10*factor+1) * time.Second, ready: time.Duration(10*factor) * time.Second, cpu: time.Duration(factor) * time.Second, manager: 500 * time.Millisecond,
				requests: requests{rollout: map[request]count{{"create", "pods"}: {all: size + 1, refused: 1}, {"get", "nodes"}: {all: 1}}},
				counts:   podCounts{mostLost: size / 10, mostCreating: 250},
			})
		}
		d.phases = append(d.phases, &daemonPhase{
			name: stageIdle, took: 30 * time.Second, cpu: 100 * time.Millisecond,
			requests: requests{rollout: map[request]count{{"update", "leases"}: {all: factor}}, leases: 3},
		})
		return d
	}
	return &daemonsMeasured{size: size, daemons: []*daemonMeasured{of("ExtendedDaemonSet", 1), of("DaemonSet", 2)}}
}

func TestPrintDaemons(t *testing.T) {
	var out strings.Builder
	if err := sampleDaemons(1000).print(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"1000 nodes, maxUnavailable 10%, pods ready after 0 s\n",
		"update  ExtendedDaemonSet  1000     10.0      11.0   100.0   1.00        1.00           0.50          1.00            100          250\n",
		"idle          DaemonSet     30.0   0.10           0.00        0.0         4.0         6.0            0.00          64.0\n",
		"create pods           1001    1001   1001     0        3\n",
		"total           1002    1002   1002     2        3\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in\n%s", want, out.String())
		}
	}
}

func TestDaemonsJSON(t *testing.T) {
	var out strings.Builder
	if err := printDaemonsJSON(&out, []*daemonsMeasured{sampleDaemons(100)}, false); err != nil {
		t.Fatal(err)
	}
	var got daemonsSummary
	if err := json.Unmarshal([]byte(out.String()), &got); err != nil || strings.Count(out.String(), "\n") != 1 {
		t.Fatalf("got %s, %v", out.String(), err)
	}
	want := daemonStageSummary{Pods: 100, Seconds: 20, ReportedSeconds: 21, CPUSeconds: 2, ManagerCPUSeconds: 0.5, Requests: 102, Writes: 101, WithoutPod: 10, InCreation: 250}
	if diff := cmp.Diff(want, got.Daemons["DaemonSet"].Stages[stageUpdate]); diff != "" || got.Kind != "daemonset" || got.Daemons["ExtendedDaemonSet"].PeakRSSMiB != 32 {
		t.Errorf("got %s (-want +got)\n%s", out.String(), diff)
	}
}

func TestDaemonsVerify(t *testing.T) {
	m := sampleDaemons(10)
	if err := m.verify(); err != nil {
		t.Errorf("got %v", err)
	}
	for i := range 12 {
		m.daemons[0].problems = append(m.daemons[0].problems, fmt.Errorf("problem %d", i))
	}
	m.daemons[1].problems = []error{errors.New("another")}
	err := m.verify()
	if err == nil || strings.Count(err.Error(), "\n") != 11 || !strings.Contains(err.Error(), "10 nodes, DaemonSet: another") {
		t.Errorf("got %v", err)
	}
}
