// SPDX-License-Identifier: Apache-2.0

package gcp_test

import (
	"testing"

	"moult.dev/moult/internal/cloud"
	"moult.dev/moult/test/clouds"
)

// docs/operations/gcp.md says what a replaced machine costs.
func TestCalls(t *testing.T) {
	set := regional("pool", 3)
	set.Max = 5
	p := newProject(t, set)
	s := p.cloud(t).ScaleSet(set.Name)
	step := func(what string, want map[string]int, do func()) {
		t.Helper()
		before := p.Calls()
		do()
		for call, n := range p.Calls() {
			n -= before[call]
			most, ok := want[call]
			if n > 0 && !ok || most >= 0 && n != most { // -1: until it is done
				t.Errorf("%s: %d of %s, want %d", what, n, call, most)
			}
		}
	}
	var described cloud.Set
	look := func() {
		t.Helper()
		var err error
		if described, err = s.Describe(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Machines(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	step("a look", map[string]int{"get": 2, "autoscalers.get": 1, "listManagedInstances": 1}, look)
	var added cloud.Progress
	change := func(c cloud.Change) {
		o, err := s.Prepare(t.Context(), &described, c)
		if err != nil {
			t.Fatal(err)
		}
		same := func() cloud.ScaleSet { return s }
		if added, err = polled(t, same, sent(t, same, o)); err != nil {
			t.Fatal(err)
		}
	}
	step("adding", map[string]int{"get": 1, "createInstances": 1, "operations.get": 2, "listManagedInstances": -1}, func() { change(cloud.Change{Add: 1, Token: "a"}) })
	await(t, "the new machine", func() bool { return p.Machines(set.Name)[3].State == clouds.Running })
	step("a look after that", map[string]int{"get": 2, "autoscalers.get": 1, "listManagedInstances": 1}, look)
	step("deleting", map[string]int{"get": 1, "deleteInstances": 1, "operations.get": 2, "listManagedInstances": -1}, func() {
		change(cloud.Change{Delete: added.Added, Token: "b"})
	})
}
