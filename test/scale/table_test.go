// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// sample is what a run over so many nodes might have found out.
func sample(size, requests int, cpu time.Duration, guarded bool) *measured {
	of := func(s subject, more time.Duration) *result {
		return &result{
			subject: s, took: 50*time.Second + more, cpu: cpu, start: 300 * time.Millisecond, peak: 64 << 20, most: 50,
			requests: requestsOf(requests),
		}
	}
	m := &measured{
		options: options{concurrency: 50, podSeconds: 1.5, guarded: guarded}, size: size, bare: 40 * time.Second,
		plainRollout: of(subject{name: "plain", parts: []int{size}}, 0),
	}
	if guarded {
		m.guardedRollout = of(subject{name: "guarded", parts: waves(size, 50)}, 5*time.Second)
	}
	return m
}

func requestsOf(n int) requests {
	return requests{rollout: map[request]count{{"patch", "nodes"}: {all: n - 1, refused: 1}, {"create", "jobs"}: {all: 1}}}
}

func TestSpread(t *testing.T) {
	rows := rowsOf([]*measured{
		sample(100, 440, 900*time.Millisecond, true),
		sample(1000, 4000, 8*time.Second, false),
		sample(5000, 19000, 42*time.Second, true),
	})
	if got := len(rows); got != 5 {
		t.Fatalf("there are %d rows", got)
	}
	near := func(a, b float64) bool { return a-b < 1e-9 && b-a < 1e-9 }
	// Against 4 requests and 8 ms over 1000 nodes: 4.4 and 3.8 requests, 9 and 8.4 ms.
	if s := spreadOf(rows, "plain"); !near(s.requests, 10) || !near(s.cpu, 12.5) {
		t.Errorf("plain: got %+v", s)
	}
	// There is none over 1000 nodes: against 4.4 requests and 9 ms over 100.
	if s, from := spreadOf(rows, "guarded"), reference(rows, "guarded"); from.nodes != 100 || !near(s.requests, 100*(1-3.8/4.4)) || !near(s.cpu, 100*(1-8.4/9)) {
		t.Errorf("guarded: got %+v from %d nodes", s, from.nodes)
	}
}

func TestTable(t *testing.T) {
	without := sample(5000, 19000, 42*time.Second, false)
	without.bare = 0
	var out strings.Builder
	if err := printTable(&out, rowsOf([]*measured{sample(100, 440, 900*time.Millisecond, false), sample(1000, 4000, 8*time.Second, true), without})); err != nil {
		t.Fatal(err)
	}
	const want = `
  nodes  rollout  seconds  bare  × bare  requests/node           CPU ms/node           peak RSS MiB
    100    plain     50.0  40.0    1.25          4.400  +10.0 %         9.00  +12.5 %          64.0
   1000    plain     50.0  40.0    1.25          4.000   +0.0 %         8.00   +0.0 %          64.0
   5000    plain     50.0     -       -          3.800   -5.0 %         8.40   +5.0 %          64.0
   1000  guarded     55.0  40.0    1.38          4.000   +0.0 %         8.00   +0.0 %          64.0

plain rollouts: within 10.0 % requests for each node, and 12.5 % CPU, of that over 1000 nodes
guarded rollouts: within 0.0 % requests for each node, and 0.0 % CPU, of that over 1000 nodes
`
	if got := out.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	out.Reset()
	if err := printTable(&out, nil); err != nil || out.String() != "" {
		t.Errorf("of nothing: %q, %v", out.String(), err)
	}
}

func TestPrint(t *testing.T) {
	var out strings.Builder
	if err := sample(1000, 4000, 8*time.Second, true).print(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"1000 nodes, 50 at a time, pods of 1.5 s, 100 Deployments of 2 pods; the guarded rollout in waves of 50, 100, 850 nodes\n",
		"ideal     30.0     33.3    0.75     0.60\n",
		"bare loop     40.0     25.0    1.00     0.80\n",
		"guarded rollout     55.0     18.2    1.38     1.10\n",
		"CPU ms per node   8.00     8.00\n",
		"requests, guarded   all  per node  refused\n",
		"patch nodes  3999     3.999        1\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in\n%s", want, out.String())
		}
	}
}

func TestJSON(t *testing.T) {
	one, two := sample(100, 440, 900*time.Millisecond, false), sample(1000, 4000, 8*time.Second, true)
	one.bare = 0
	var out strings.Builder
	if err := printJSON(&out, []*measured{one}, false); err != nil {
		t.Fatal(err)
	}
	const want = `{"nodes":100,"concurrency":50,"podSeconds":1.5,"seconds":50,"idealSeconds":3,"requestsPerNode":4.4,` +
		`"cpuSeconds":0.9,"startCPUSeconds":0.3,"peakRSSMiB":64,"nodesUnavailable":50}` + "\n"
	if got := out.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	out.Reset()
	if err := printJSON(&out, []*measured{one, two}, true); err != nil {
		t.Fatal(err)
	}
	var list []summary
	if err := json.Unmarshal([]byte(out.String()), &list); err != nil || len(list) != 2 || strings.Count(out.String(), "\n") != 1 {
		t.Fatalf("got %+v, %v", list, err)
	}
	if g := list[1].Guarded; g == nil || g.TimesPlain != 1.1 || g.Seconds != 55 || list[1].BareSeconds != 40 || list[0].Guarded != nil {
		t.Errorf("got %+v", list)
	}
	out.Reset()
	if err := printJSON(&out, []*measured{one}, true); err != nil || !strings.HasPrefix(out.String(), "[{") {
		t.Errorf("one of several that were asked for is %q, %v", out.String(), err)
	}
}
