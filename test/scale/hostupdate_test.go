// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/agent/host"
)

func TestHostOptions(t *testing.T) {
	o, err := parse([]string{"--kind", "hostupdate", "--nodes", "120", "--reboot-seconds", "3"})
	if err != nil || o.kind != kindHostUpdate || o.hosts.away() != 3*time.Second || o.idealHosts(120) != 9*time.Second || o.hosts.podsPerNode != 2 {
		t.Errorf("got %+v, %v", o, err)
	}
	if got := o.hostPatience(100); got != 3*time.Minute+4*6*time.Second+20*time.Second {
		t.Errorf("patience is %s", got)
	}
	for _, args := range [][]string{{"--reboot-seconds", "-1"}, {"--check-seconds", "0"}, {"--pods-per-node", "-1"}} {
		if o, err := parse(args); err == nil {
			t.Errorf("%q is %+v", args, o)
		}
	}
}

func TestPlayedHost(t *testing.T) {
	h := newPlayedHost("first")
	expect := func(version, boot string, available bool) {
		t.Helper()
		is, _ := h.Version(t.Context())
		id, _ := h.BootID()
		offer, _ := h.Check(t.Context())
		if is != version || (id == "first") != (boot == "first") || offer.Available != available {
			t.Errorf("it runs %s in boot %s and offers %+v, want %s, %s, %v", is, id, offer, version, boot, available)
		}
	}
	expect(oldRelease, "first", true)
	if err := h.Perform(t.Context(), newRelease); err == nil {
		t.Error("it performs what was not prepared")
	}
	if err := h.Prepare(t.Context(), "0.0.1"); !errors.Is(err, host.ErrOther) {
		t.Errorf("preparing another release: %v", err)
	}
	// A reboot before the update is performed changes the boot alone.
	h.start()
	expect(oldRelease, "another", true)
	if err := errors.Join(h.Prepare(t.Context(), newRelease), h.Perform(t.Context(), "")); err != nil {
		t.Fatal(err)
	}
	expect(oldRelease, "another", true)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- h.Reboot(ctx) }()
	<-h.ordered
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the reboot ends with %v", err)
	}
	if boot, image := h.start(); boot == "first" || image != "Bottlerocket OS 1.20.0 (aws-k8s-1.37)" {
		t.Errorf("got %s, %s", boot, image)
	}
	expect(newRelease, "another", false)
	if diff := cmp.Diff(hostCounts{checks: 4, prepared: 1, performed: 1, orders: 1, boots: 2}, h.counted(), cmp.AllowUnexported(hostCounts{})); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// nodeAt is a Node that stands as a trace tells.
func nodeAt(name, boot, standing string) *corev1.Node {
	said, cordoned := strings.CutSuffix(standing, " !")
	said, update, _ := strings.Cut(said, " ")
	parts := strings.Split(said, ",")
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{
			hostProtocol.Wanted: parts[0], hostProtocol.Active: parts[1], hostProtocol.State: parts[2], hostProtocol.Update: update,
		}},
		Spec:   corev1.NodeSpec{Unschedulable: cordoned},
		Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{BootID: boot}},
	}
}

func TestHostTally(t *testing.T) {
	tally := newHostTally()
	for _, name := range []string{"a", "b"} {
		tally.see(watch.Added, nodeAt(name, "1", ",, "))
	}
	play := func(name string, trace []string) {
		for _, standing := range trace {
			boot := "1"
			if strings.HasPrefix(standing, "reboot-update,reboot-update,ready") || strings.HasSuffix(standing, "false") {
				boot = "2"
			}
			tally.see(watch.Modified, nodeAt(name, boot, standing))
			tally.see(watch.Modified, nodeAt(name, boot, standing)) // Something else has changed.
		}
	}
	tally.begin()
	play("a", traceFound)
	play("b", traceFound[:2])
	const another = "1 nodes, such as b, had another trace: stabilize,unknown,unknown unknown → "
	if problems := tally.verify(traceFound, 0); len(problems) != 1 || !strings.HasPrefix(problems[0].Error(), another) {
		t.Errorf("got %v", problems)
	}
	if got, want := tally.progress(), "1 × stabilize,stabilize,busy unknown; 1 × stabilize,stabilize,ready true"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	play("b", traceFound[2:])
	if problems := tally.verify(traceFound, 0); len(problems) > 0 || tally.at(traceFound[2]) != 2 {
		t.Errorf("got %v, %d", problems, tally.at(traceFound[2]))
	}
	tally.begin()
	for _, name := range []string{"a", "b"} {
		for i, standing := range traceUpdate {
			boot := "1"
			if i >= 9 {
				boot = "2"
			}
			tally.see(watch.Modified, nodeAt(name, boot, standing))
		}
	}
	if problems := tally.verify(traceUpdate, 1); len(problems) > 0 {
		t.Errorf("got %v", problems)
	}
	tally.see(watch.Modified, nodeAt("b", "3", traceUpdate[len(traceUpdate)-1]))
	if problems := tally.verify(traceUpdate, 1); len(problems) != 1 || !strings.Contains(problems[0].Error(), "node b has told of 2 new boots") {
		t.Errorf("a second reboot: %v", problems)
	}
}

func TestNotLeft(t *testing.T) {
	h := newPlayedHost("1")
	h.prepared, h.next = newRelease, newRelease
	boot, image := h.start()
	good := func() *corev1.Node {
		n := nodeAt("a", boot, traceUpdate[len(traceUpdate)-1])
		n.Annotations[v1alpha1.AnnotationHostVersion] = newRelease
		n.Labels = map[string]string{hostProtocol.Update: v1alpha1.HostUpdateFalse}
		n.Status.NodeInfo.OSImage = image
		return n
	}
	if why := notLeft(good(), h); why != "" {
		t.Errorf("a good one %s", why)
	}
	for want, spoil := range map[string]func(*corev1.Node){
		"says that its host runs": func(n *corev1.Node) { n.Annotations[v1alpha1.AnnotationHostVersion] = oldRelease },
		"tells of boot":           func(n *corev1.Node) { n.Status.NodeInfo.BootID = "1" },
		"is still claimed":        func(n *corev1.Node) { n.Annotations[v1alpha1.AnnotationClaims] = "[]" },
		"is unschedulable":        func(n *corev1.Node) { n.Spec.Unschedulable = true },
		"in its label":            func(n *corev1.Node) { n.Labels = nil },
		"has an error":            func(n *corev1.Node) { n.Annotations[v1alpha1.AnnotationHostError] = "no" },
	} {
		n := good()
		spoil(n)
		if why := notLeft(n, h); !strings.Contains(why, want) {
			t.Errorf("%q should be wrong: %q", want, why)
		}
	}
	if why := notLeft(good(), newPlayedHost("1")); !strings.Contains(why, "a host that runs "+oldRelease) {
		t.Errorf("an old host: %q", why)
	}
}

func TestLifetime(t *testing.T) {
	for uri, want := range map[string]time.Duration{
		"/api/v1/nodes?watch=true&timeoutSeconds=431": 431 * time.Second,
		"/api/v1/nodes?watch=true":                    45 * time.Minute,
		"/api/v1/nodes?timeoutSeconds=x":              45 * time.Minute,
		"%":                                           45 * time.Minute,
	} {
		if got := lifetime(uri); got != want {
			t.Errorf("%s: got %s, want %s", uri, got, want)
		}
	}
}

// sampleHosts is what a run over so many nodes might have found out.
func sampleHosts(size int) *hostsMeasured {
	// A watch goes on for 7.5 minutes: 8 an hour.
	of := func(all, begun int) requests {
		r := newRequests()
		if all > 0 {
			r.rollout[request{"patch", "nodes"}] = count{all: all, refused: 1}
			r.rollout[request{"get", "nodes"}] = count{all: size}
		}
		if r.watches = begun; begun > 0 {
			r.watched["nodes"] = watches{begun, time.Duration(begun) * 450 * time.Second}
		}
		return r
	}
	second := hostUsage{operator: time.Second, agents: 2 * time.Second}
	o, _ := parse([]string{"--kind", "hostupdate"})
	m := &hostsMeasured{options: o, size: size, start: time.Second / 2, peak: 64 << 20, most: 50}
	m.phases = []*hostPhase{
		{name: stageStart, took: time.Second, operator: of(0, 10), agents: of(0, size), cpu: second},
		{name: stageFind, took: 10 * time.Second, operator: of(size, 0), agents: of(2*size, 0), cpu: second},
		{name: stageUpdate, took: 50 * time.Second, operator: of(6*size, 0), agents: of(8*size, size), cpu: second},
		{name: stageAgain, took: time.Second, operator: of(0, 0), agents: of(0, size), cpu: second},
		{name: stageIdle, took: time.Minute, operator: of(0, 0), agents: of(0, 0), checks: 6 * size, cpu: second},
	}
	return m
}

func TestHourly(t *testing.T) {
	m := sampleHosts(100)
	near := func(a, b float64) bool { return math.Abs(a-b) < 1e-9 }
	if h := m.hourlyOfAgents(); h.byChecks != 0 || !near(h.watches, 8) || !near(h.all(), 8) {
		t.Errorf("agents: %+v", h)
	}
	if h := m.hourlyOfOperator(); h.byClock != 0 || !near(h.watches, 0.8) {
		t.Errorf("operator: %+v", h)
	}
	// Half a request with each check is one an hour, and 10 by the operator in a minute 6 for each of 100 nodes.
	idle := m.phase(stageIdle)
	idle.agents.rollout[request{"get", "nodes"}] = count{all: 300}
	idle.operator.rollout[request{"get", "nodes"}] = count{all: 10}
	if h := m.hourlyOfAgents(); !near(h.byChecks, 1) {
		t.Errorf("agents: %+v", h)
	}
	if h := m.hourlyOfOperator(); !near(h.byClock, 6) {
		t.Errorf("operator: %+v", h)
	}
	m.phases = m.phases[:3]
	if h := m.hourlyOfAgents(); h.all() != 0 {
		t.Errorf("without idleness: %+v", h)
	}
}

func TestPrintHosts(t *testing.T) {
	var out strings.Builder
	if err := sampleHosts(1000).print(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"1000 nodes, 50 at a time, 2 pods for each, reboots of 2 s; the agents with the shipped rights\n",
		"update     50.0     20.0            1.00     1.00          2.00     2.00          16.00      7.00    9.00\n",
		"requests, update  operator  per node  refused  agents  per node  refused\n",
		"patch nodes      6000     6.000        1    8000     8.000        1\n",
		"idle for 60 s, 6000 checks",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in\n%s", want, out.String())
		}
	}
}

func TestHostsJSON(t *testing.T) {
	var out strings.Builder
	if err := printHostsJSON(&out, []*hostsMeasured{sampleHosts(100)}, false); err != nil {
		t.Fatal(err)
	}
	var got hostsSummary
	if err := json.Unmarshal([]byte(out.String()), &got); err != nil || strings.Count(out.String(), "\n") != 1 {
		t.Fatalf("got %s, %v", out.String(), err)
	}
	want := hostStageSummary{
		Seconds: 50, Operator: hostSideSummary{CPUSeconds: 1, RequestsPerNode: 7, WritesPerNode: 6, Refused: 1},
		Agents: hostSideSummary{CPUSeconds: 2, RequestsPerNode: 9, WritesPerNode: 8, WatchesPerNode: 1, Refused: 1},
	}
	if diff := cmp.Diff(want, got.Stages[stageUpdate]); diff != "" || got.Kind != kindHostUpdate || got.IdealSeconds != 4 {
		t.Errorf("got %s (-want +got)\n%s", out.String(), diff)
	}
	if got.Idle == nil || got.Idle.Checks != 600 || got.Idle.AgentsRequestsPerNodeAndHour != 8 {
		t.Errorf("got %+v", got.Idle)
	}
}
