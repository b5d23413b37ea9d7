// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// A rollout with a turn in progress comes before those that only wait.
func TestWaitersAdd(t *testing.T) {
	w := &Waiters{}
	of := func(name string) types.NamespacedName { return types.NamespacedName{Name: name} }
	q := priorityqueue.New[reconcile.Request](t.Name())
	defer q.ShutDown()
	w.SetBusy(of("busy"), true)
	for _, name := range []string{"waits", "waits too", "busy"} {
		w.Add(q, reconcile.Request{NamespacedName: of(name)}, 0)
	}
	for _, want := range []string{"busy", "waits", "waits too"} {
		if got, _ := q.Get(); got.Name != want {
			t.Errorf("got %q, want %q", got.Name, want)
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
