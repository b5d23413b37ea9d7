// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"moult.dev/moult/test/audit"
)

func TestReadRequests(t *testing.T) {
	t.Parallel()
	began := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	path := filepath.Join(t.TempDir(), "audit.log")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	line := func(agent string, after time.Duration, verb, resource, name string, code int) {
		stage := "ResponseComplete"
		if verb == "watch" {
			stage = "ResponseStarted"
		}
		fmt.Fprintf(file, `{"stage":%q,"verb":%q,"userAgent":%q,"requestReceivedTimestamp":%q,"objectRef":{"resource":%q,"name":%q},"responseStatus":{"code":%d}}`+"\n",
			stage, verb, agent, began.Add(after).Format(time.RFC3339Nano), resource, name, code)
	}
	const agent = "moult/v1"
	line(agent, -time.Second, "get", "namespaces", "kube-system", 200)
	line(agent, 0, "create", "jobs", "one", 201)
	line(agent, time.Second, "create", "jobs", "two", 201)
	line(agent, time.Second, "create", "jobs", "two", 409)
	line(agent, time.Second, "patch", "nodes", "a", 200)
	line(agent, time.Second, "patch", "nodes", "a", 409)
	line(agent, time.Second, "patch", "nodes", "a", 422)
	line(agent, time.Second, "watch", "pods", "", 200)
	line(agent, time.Second, "update", "leases", "moult", 200)
	line("scale", time.Second, "create", "jobs", "three", 201)
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	log, err := audit.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	calls := 0
	r, err := readRequests(t.Context(), log, byOperator, began, func() error { calls++; return nil })
	if err != nil {
		t.Fatal(err)
	}
	want := map[request]count{{"create", "jobs"}: {3, 1}, {"patch", "nodes"}: {3, 2}}
	if !maps.Equal(r.rollout, want) || r.total() != (count{6, 3}) || r.start != 1 || r.watches != 1 || r.leases != 1 {
		t.Errorf("got %+v", r)
	}
	if !slices.Equal(r.jobs, []string{"one", "two"}) {
		t.Errorf("the Jobs are %v", r.jobs)
	}
	if !maps.Equal(r.faults, map[string]int{"patch nodes: 422 Unprocessable Entity": 1}) {
		t.Errorf("the faults are %v", r.faults)
	}
	if calls != 1 {
		t.Errorf("called %d times for requests that came at once", calls)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := readRequests(ctx, log, byOperator, began, func() error { return nil }); err == nil {
		t.Error("it does not end with its context")
	}
}
