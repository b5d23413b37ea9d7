// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"moult.dev/moult/internal/rollout"
)

func TestReplaced(t *testing.T) {
	b := newBench(t)
	agent, logs := types.NamespacedName{Namespace: "ns", Name: "agent"}, types.NamespacedName{Namespace: "ns", Name: "logs"}
	later := morning.Add(time.Minute)
	b.SetReplaced(agent, map[string]time.Time{"n1": morning, "n2": later})
	b.SetReplaced(logs, map[string]time.Time{"n2": morning})
	woken := b.woken
	b.SetReplaced(agent, map[string]time.Time{"n1": later, "n2": later}) // A node keeps its time.
	if b.woken != woken || woken != 2 {
		t.Errorf("woken %d times, and %d times before", b.woken, woken)
	}
	expect := func(want map[string][]rollout.Replacement) {
		t.Helper()
		s, err := b.Snapshot(t.Context())
		if diff := cmp.Diff(want, s.Replaced); err != nil || diff != "" {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
	}
	of := func(name string, since time.Time) rollout.Replacement {
		return rollout.Replacement{By: "ExtendedDaemonSet/ns/" + name, Since: since}
	}
	expect(map[string][]rollout.Replacement{"n1": {of("agent", morning)}, "n2": {of("logs", morning), of("agent", later)}})
	b.SetReplaced(agent, nil)
	expect(map[string][]rollout.Replacement{"n2": {of("logs", morning)}})
}

// No node may be claimed before each ExtendedDaemonSet has said where it replaces pods. One that can't be carried out is not waited for.
func TestKnowsReplaced(t *testing.T) {
	b := newBench(t)
	expect := func(what string, want bool) {
		t.Helper()
		if got := b.KnowsReplaced(t.Context()); got != want {
			t.Errorf("%s: got %t", what, got)
		}
	}
	expect("no controller", true)
	var all []reconcile.Request
	b.DaemonSets(func(context.Context) ([]reconcile.Request, error) { return all, nil })
	agent, logs := types.NamespacedName{Namespace: "ns", Name: "agent"}, types.NamespacedName{Namespace: "ns", Name: "logs"}
	all = []reconcile.Request{{NamespacedName: agent}, {NamespacedName: logs}}
	expect("two", false)
	b.SetReplaced(agent, map[string]time.Time{"n1": morning})
	expect("one has looked", false)
	b.AddReplaced(logs, nil)
	expect("the other has failed", true)
	all = append(all, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "ns", Name: "new"}})
	expect("one is created", true)
	b.AddReplaced(agent, nil)
	if s, err := b.Snapshot(t.Context()); err != nil || len(s.Replaced) != 1 {
		t.Errorf("what was known is gone: %v, %v", s.Replaced, err)
	}
}
