// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"strconv"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// A rollout that a change concerns comes before those with thousands of others, and so does one with a turn in progress. One whose last pass failed
// keeps its time.
func TestWaitersAdd(t *testing.T) {
	w := &Waiters{}
	of := func(name string) reconcile.Request {
		return reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}
	}
	q := priorityqueue.New[reconcile.Request](t.Name())
	defer q.ShutDown()
	w.SetBusy(of("busy").NamespacedName, true)
	w.Prioritize(of("failed").NamespacedName, reconcile.Result{}, true)
	w.Prioritize(of("busy").NamespacedName, reconcile.Result{}, true)
	w.Prioritize(of("waits").NamespacedName, reconcile.Result{}, true)
	w.Prioritize(of("waits").NamespacedName, reconcile.Result{}, false)
	w.AddLast(q, 0, of("failed"), of("waits"), of("waits too"), of("busy"))
	w.Add(q, 0, of("failed"), of("concerned"))
	for _, want := range []string{"busy", "concerned", "waits", "waits too"} {
		if got, _ := q.Get(); got.Name != want {
			t.Errorf("got %q, want %q", got.Name, want)
		}
	}
	if q.Len() > 0 {
		t.Errorf("%d more are enqueued", q.Len())
	}
}

// added records what is enqueued.
type added struct {
	priorityqueue.PriorityQueue[reconcile.Request]
	after map[string]time.Duration
}

func (a *added) AddWithOpts(o priorityqueue.AddOpts, items ...reconcile.Request) {
	for _, r := range items {
		a.after[r.Name] = o.After
	}
}

// The more rollouts a change wakes, the later those without a turn look at it.
func TestWaitersMakeRoom(t *testing.T) {
	w := &Waiters{}
	w.SetBusy(types.NamespacedName{Name: "0"}, true)
	for n, want := range map[int]time.Duration{2: Coalesce, fewIdle: Coalesce, 1000: (1000 - fewIdle) * perIdle} {
		q := &added{after: map[string]time.Duration{}}
		var all []reconcile.Request
		for i := range n {
			all = append(all, reconcile.Request{NamespacedName: types.NamespacedName{Name: strconv.Itoa(i)}})
		}
		if w.Add(q, Coalesce, all...); q.after["0"] != Coalesce || q.after["1"] != want {
			t.Errorf("of %d rollouts the busy one looks after %v, and others after %v, want %v", n, q.after["0"], q.after["1"], want)
		}
	}
}

// A change of a budget also wakes rollouts with a turn: a node may be healthy by it now.
func TestWaitersOfBudgets(t *testing.T) {
	w := &Waiters{}
	w.SetBusy(types.NamespacedName{Name: "busy"}, true)
	w.Set(types.NamespacedName{Name: "waits"}, true)
	for i, want := range []int{2, 1} {
		q := &added{after: map[string]time.Duration{}}
		if w.wakeAll(q, 1); len(q.after) != want {
			t.Errorf("change %d wakes %v, want %d", i+1, q.after, want)
		}
	}
}

func TestWaitersPrioritize(t *testing.T) {
	w := &Waiters{}
	w.SetBusy(types.NamespacedName{Name: "busy"}, true)
	w.SetBusy(types.NamespacedName{Name: "was busy"}, true)
	w.SetBusy(types.NamespacedName{Name: "was busy"}, false)
	const kept = 1 // The queue keeps the priority.
	for _, tc := range []struct {
		name   string
		after  time.Duration
		failed bool
		want   int
	}{
		{"busy", time.Hour, true, 0},
		{"was busy", time.Hour, false, handler.LowPriority},
		{"waits", 2 * StatusInterval, false, handler.LowPriority},
		{"waits", Coalesce, false, kept},
		{"waits", Coalesce, true, handler.LowPriority},
	} {
		got := kept
		if p := w.Prioritize(types.NamespacedName{Name: tc.name}, reconcile.Result{RequeueAfter: tc.after}, tc.failed).Priority; p != nil {
			got = *p
		}
		if got != tc.want {
			t.Errorf("%+v: got %d", tc, got)
		}
	}
}
