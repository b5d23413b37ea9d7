// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// The interval and the timeout of attempts to read objects.
const (
	watchRetry   = 5 * time.Second
	watchTimeout = 10 * time.Second
)

// SetupWithManager makes the manager run the watches and pollers of the gates, in the leader only. Each starts when a
// budget or a rollout's order first needs it.
func (f *Fleet) SetupWithManager(_ context.Context, m ctrl.Manager) error {
	g := f.gates
	g.changed, g.api = f.Changed, m.GetAPIReader()
	for _, w := range g.watches {
		if w.from == nil && w != g.pods {
			w.from = m.GetCache()
		}
	}
	return m.Add(manager.RunnableFunc(g.run))
}

// watch is the watch of one kind of objects for gates.
type watch struct {
	gates *gates
	// kind is the plural, for messages.
	kind   string
	object client.Object
	list   client.ObjectList
	// matters reports whether a change may affect a gate. The old or the new object may be nil.
	matters func(old, now client.Object) bool
	from    cache.Informers
	// store holds the objects, after the watch is open.
	store toolscache.Store
	// wanted is true once the watch is started. It is guarded by the lock of the gates.
	wanted bool

	mu sync.Mutex
	// why the objects are not known; empty when they are.
	why string
}

func newWatch(g *gates, kind string, object client.Object, list client.ObjectList, matters func(old, now client.Object) bool) *watch {
	return &watch{gates: g, kind: kind, object: object, list: list, matters: matters, why: kind + " are being read"}
}

// want starts the watch, if it is not started. The caller holds the lock of the gates.
func (w *watch) want() {
	if !w.wanted {
		w.wanted = true
		w.gates.start(w.run)
	}
}

// unknown returns why the objects are not known, or "".
func (w *watch) unknown() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.why
}

// setUnknown sets why the objects are not known, and reports whether that has changed.
func (w *watch) setUnknown(why string) bool {
	w.mu.Lock()
	changed := why != w.why
	w.why = why
	w.mu.Unlock()
	if changed {
		w.gates.notice()
	}
	return changed
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
		var err error
		if handler, err = w.open(ctx); err == nil {
			w.setUnknown(w.kind + " are being read")
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

func (w *watch) open(ctx context.Context) (toolscache.ResourceEventHandlerRegistration, error) {
	if w.from == nil {
		return nil, errors.New("there is no cache for them")
	}
	// An informer does not return read errors.
	short, cancel := context.WithTimeout(ctx, watchTimeout)
	defer cancel()
	if err := w.gates.api.List(short, w.list, client.Limit(1)); err != nil {
		return nil, err
	}
	informer, err := w.from.GetInformer(ctx, w.object, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, err
	}
	shared, ok := informer.(toolscache.SharedInformer)
	if !ok {
		return nil, errors.New("their cache has no store")
	}
	w.store = shared.GetStore()
	return informer.AddEventHandler(w.handler())
}

func (w *watch) handler() toolscache.ResourceEventHandler {
	changed := func(old, now any) {
		if last, ok := old.(toolscache.DeletedFinalStateUnknown); ok {
			old = last.Obj
		}
		before, _ := old.(client.Object)
		after, _ := now.(client.Object)
		if w.matters(before, after) && w.unknown() == "" {
			w.gates.notice()
		}
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { changed(nil, o) },
		UpdateFunc: changed,
		DeleteFunc: func(o any) { changed(o, nil) },
	}
}
