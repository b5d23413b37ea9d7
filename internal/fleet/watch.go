// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"moult.dev/moult/api/v1alpha1"
)

// The interval and the timeout of attempts to read objects.
const (
	watchRetry   = 5 * time.Second
	watchTimeout = 10 * time.Second
)

// SetupWithManager watches Nodes and budgets. It also makes the manager run the watches and pollers of the gates, in the leader
// only. Each starts when a budget or a rollout's order first needs it.
func (f *Fleet) SetupWithManager(ctx context.Context, m ctrl.Manager) error {
	g := f.gates
	g.api = m.GetAPIReader()
	g.start = func(run func(context.Context)) {
		// The manager refuses it only while it stops.
		_ = m.Add(manager.RunnableFunc(func(ctx context.Context) error {
			run(ctx)
			return nil
		}))
	}
	for _, w := range g.watches {
		if w.from == nil {
			w.from = m.GetCache()
		}
	}
	nodes, _, err := follow(ctx, m.GetCache(), &corev1.Node{}, NodeChanged, f.Changed)
	if err == nil && !f.NoBudgets {
		f.budgetStore, _, err = follow(ctx, m.GetCache(), &v1alpha1.NodeDisruptionBudget{}, SpecChanged, func() {
			f.budgetChanges.Add(1)
			f.Changed()
		})
	}
	if err != nil {
		return fmt.Errorf("watching nodes and budgets, %w", err)
	}
	f.store = nodes
	return nil
}

// isRelevant reports whether a change of an object can change a gate. The old or the new object may be nil.
type isRelevant func(old, now client.Object) bool

// follow watches a kind of objects. It returns the store that holds them, and calls notify after each change that matters.
func follow(
	ctx context.Context, in cache.Informers, object client.Object, change isRelevant, notify func(),
) (toolscache.Store, toolscache.ResourceEventHandlerRegistration, error) {
	informer, err := in.GetInformer(ctx, object, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, nil, err
	}
	shared, ok := informer.(toolscache.SharedInformer)
	if !ok {
		return nil, nil, errors.New("the cache has no store")
	}
	handler, err := informer.AddEventHandler(change.handler(notify))
	return shared.GetStore(), handler, err
}

// handler calls notify after each change that matters.
func (m isRelevant) handler(notify func()) toolscache.ResourceEventHandler {
	changed := func(old, now any) {
		if last, ok := old.(toolscache.DeletedFinalStateUnknown); ok {
			old = last.Obj
		}
		before, _ := old.(client.Object)
		after, _ := now.(client.Object)
		if m(before, after) {
			notify()
		}
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { changed(nil, o) },
		UpdateFunc: changed,
		DeleteFunc: func(o any) { changed(o, nil) },
	}
}

// objectsOf returns the objects of a store.
func objectsOf[T any](store toolscache.Store) []T {
	stored := store.List()
	objects := make([]T, 0, len(stored))
	for _, o := range stored {
		if object, ok := o.(T); ok {
			objects = append(objects, object)
		}
	}
	return objects
}

// watch is the watch of one kind of objects for gates.
type watch struct {
	gates *gates
	// kind is the plural, for messages.
	kind   string
	object client.Object
	list   client.ObjectList
	// isRelevant reports whether a change may affect a gate.
	isRelevant isRelevant
	from       cache.Informers
	// store holds the objects, after the watch is open.
	store toolscache.Store
	// wanted is true once the watch is started. It is guarded by the lock of the gates.
	wanted bool
	// why the objects are not known; empty when they are.
	why atomic.Pointer[string]
}

func newWatch(g *gates, kind string, object client.Object, list client.ObjectList, change isRelevant) *watch {
	w := &watch{gates: g, kind: kind, object: object, list: list, isRelevant: change}
	w.why.Store(ptr.To(w.reading()))
	return w
}

// want starts the watch, if it is not started. The caller holds the lock of the gates.
func (w *watch) want() {
	if !w.wanted {
		w.wanted = true
		w.gates.start(w.run)
	}
}

// reading is why the objects are not known while they are read for the first time.
func (w *watch) reading() string { return w.kind + " are being read" }

// whyUnknown returns why the objects are not known, or "".
func (w *watch) whyUnknown() string { return *w.why.Load() }

// setUnknown sets why the objects are not known, and reports whether that has changed.
func (w *watch) setUnknown(why string) bool {
	changed := *w.why.Swap(&why) != why
	if changed {
		w.gates.notice()
	}
	return changed
}

// noticeKnown is called after a change that matters. Before all objects are known, it does nothing.
func (w *watch) noticeKnown() {
	if w.whyUnknown() == "" {
		w.gates.notice()
	}
}

// get returns an object of the store, or nil.
func (w *watch) get(namespace, name string) client.Object {
	key := toolscache.ObjectName{Namespace: namespace, Name: name}.String()
	found, _, _ := w.store.GetByKey(key) // A store in memory returns no error.
	o, _ := found.(client.Object)
	return o
}

// run opens the watch, with retries. It returns when all objects are known.
func (w *watch) run(ctx context.Context) {
	var handler toolscache.ResourceEventHandlerRegistration
	err := wait.PollUntilContextCancel(ctx, watchRetry, true, func(ctx context.Context) (bool, error) {
		// An informer does not return the API server's error, such as a missing permission.
		short, cancel := context.WithTimeout(ctx, watchTimeout)
		defer cancel()
		err := w.gates.api.List(short, w.list, client.Limit(1))
		if err == nil {
			w.store, handler, err = follow(ctx, w.from, w.object, w.isRelevant, w.noticeKnown)
		}
		if err == nil {
			w.setUnknown(w.reading())
			return true, nil
		}
		if w.setUnknown("reading " + w.kind + ", " + err.Error()) {
			log.FromContext(ctx).Error(err, "gate stays closed because its objects can't be read", "kind", w.kind)
		}
		return false, nil
	})
	if err == nil && toolscache.WaitForCacheSync(ctx.Done(), handler.HasSynced) {
		w.setUnknown("")
	}
}
