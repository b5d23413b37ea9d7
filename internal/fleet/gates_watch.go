// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
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
func (f *Fleet) SetupWithManager(ctx context.Context, m ctrl.Manager) error {
	g := f.gates
	if err := m.GetFieldIndexer().IndexField(ctx, &corev1.Node{}, IndexEvicted, Evicted); err != nil {
		return fmt.Errorf("indexing nodes, %w", err)
	}
	g.changed = f.Changed
	for _, w := range g.watches {
		if w.from == nil && w != g.pods {
			w.from = m.GetCache()
		}
	}
	return m.Add(manager.RunnableFunc(func(ctx context.Context) error { return g.run(ctx, m.GetAPIReader()) }))
}

// run starts wanted watches and pollers, until ctx ends.
func (g *gates) run(ctx context.Context, api client.Reader) error {
	var running sync.WaitGroup
	defer running.Wait()
	for {
		for _, w := range g.watches {
			if w.take() {
				running.Go(func() { w.run(ctx, api) })
			}
		}
		for _, p := range g.alerts.takeNew() {
			running.Go(func() { p.run(ctx) })
		}
		select {
		case <-ctx.Done():
			return nil
		case <-g.started:
		}
	}
}

// start makes run check for new watches and pollers.
func (g *gates) start() {
	select {
	case g.started <- struct{}{}:
	default:
	}
}

// watch is the watch of one kind of objects for gates.
type watch struct {
	// kind is the plural, for messages.
	kind   string
	object client.Object
	list   client.ObjectList
	from   cache.Informers
	// store holds the objects, after the watch is open.
	store toolscache.Store
	// matters reports whether a change may affect a gate. The old or the new object may be nil.
	matters func(old, now client.Object) bool
	gates   *gates

	mu            sync.Mutex
	wanted, taken bool
	synced        bool
	problem       string
}

// want starts the watch, if it is not started.
func (w *watch) want() {
	w.mu.Lock()
	first := !w.wanted
	w.wanted = true
	w.mu.Unlock()
	if first {
		w.gates.start()
	}
}

// take reports whether the watch must be started now.
func (w *watch) take() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	take := w.wanted && !w.taken
	w.taken = w.taken || take
	return take
}

// unknown returns why the objects are not known, or "".
func (w *watch) unknown() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.synced:
		return ""
	case w.problem != "":
		return w.problem
	}
	return w.kind + " are being read"
}

// get returns an object of the store, or nil.
func (w *watch) get(namespace, name string) client.Object {
	key := toolscache.ObjectName{Namespace: namespace, Name: name}.String()
	found, _, _ := w.store.GetByKey(key) // A store in memory returns no error.
	o, _ := found.(client.Object)
	return o
}

// run opens the watch, with retries. It returns when all objects are known.
func (w *watch) run(ctx context.Context, api client.Reader) {
	var handler toolscache.ResourceEventHandlerRegistration
	err := wait.PollUntilContextCancel(ctx, watchRetry, true, func(ctx context.Context) (bool, error) {
		var err error
		handler, err = w.open(ctx, api)
		w.fail(ctx, err)
		return err == nil, nil
	})
	if err != nil || !toolscache.WaitForCacheSync(ctx.Done(), handler.HasSynced) {
		return // The process ends.
	}
	w.mu.Lock()
	w.synced = true
	w.mu.Unlock()
	w.gates.notice()
}

func (w *watch) open(ctx context.Context, api client.Reader) (toolscache.ResourceEventHandlerRegistration, error) {
	if w.from == nil {
		return nil, errors.New("there is no cache for them")
	}
	// An informer does not return read errors.
	short, cancel := context.WithTimeout(ctx, watchTimeout)
	defer cancel()
	if err := api.List(short, w.list, client.Limit(1)); err != nil {
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

func (w *watch) fail(ctx context.Context, err error) {
	problem := ""
	if err != nil {
		problem = "reading " + w.kind + ", " + err.Error()
	}
	w.mu.Lock()
	changed := problem != w.problem
	w.problem = problem
	w.mu.Unlock()
	if changed && err != nil {
		log.FromContext(ctx).Error(err, "gate stays closed because its objects can't be read", "kind", w.kind)
	}
	if changed {
		w.gates.notice()
	}
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
