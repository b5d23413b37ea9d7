// SPDX-License-Identifier: Apache-2.0

package turn

import (
	"errors"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"moult.dev/moult/api/v1alpha1"
	"moult.dev/moult/internal/fleet"
)

// The conditions of a rollout that is refused say why, once. Nothing else of its status is written.
func TestRefuses(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
	o := Object()
	o.SetName("a")
	o.Object["status"] = map[string]any{"conditions": []any{
		map[string]any{"type": "Open", "status": "True", "reason": "Other", "message": "kept", "lastTransitionTime": "2026-03-04T11:00:00Z"},
		map[string]any{"type": "Ready", "status": "False", "reason": "Updating", "message": "", "lastTransitionTime": "2026-03-04T11:00:00Z"},
	}}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(o).WithStatusSubresource(Object()).Build()
	clk := testingclock.NewFakePassiveClock(now)
	e := &Engine{Kind: Kind, Clock: clk, Client: c, Waiting: &fleet.Waiters{}, Fleet: fleet.New(clk, c, nil)}
	key := client.ObjectKeyFromObject(o)
	read := func() *unstructured.Unstructured {
		t.Helper()
		stored, err := Get(t.Context(), c, key, Object())
		if err != nil {
			t.Fatal(err)
		}
		return stored
	}
	if refused, err := e.Refuses(t.Context(), key, read()); refused || err != nil {
		t.Fatal(refused, err)
	}
	e.Fleet.Refused = func(kind string) error { return errors.New(kind + " lacks status.x") }
	if refused, err := e.Refuses(t.Context(), key, read()); !refused || err != nil {
		t.Fatal(refused, err)
	}
	first := read()
	s := StatusOf(first)
	got := map[string]string{}
	for _, c := range s.Conditions {
		got[c.Type] = string(c.Status) + " " + c.Reason + " " + c.Message + " " + c.LastTransitionTime.UTC().Format("15:04")
	}
	const refused = v1alpha1.ReasonDefinitionIncomplete + " NodeRollout lacks status.x "
	for kind, want := range map[string]string{
		"Open": "True Other kept 11:00", "Ready": "False " + refused + "11:00",
		"Reconciling": "False " + refused + "12:00", "Stalled": "True " + refused + "12:00",
	} {
		if got[kind] != want {
			t.Errorf("%s is %q, want %q", kind, got[kind], want)
		}
	}
	if s.ObservedGeneration != 0 || len(s.Conditions) != 4 {
		t.Errorf("it writes %+v", s)
	}
	clk.SetTime(now.Add(time.Hour))
	if refused, err := e.Refuses(t.Context(), key, read()); !refused || err != nil || read().GetResourceVersion() != first.GetResourceVersion() {
		t.Error("the same was written again", refused, err)
	}
}
