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

// What can't be read is tried again that often, each time for so long.
const (
	watchRetry   = 5 * time.Second
	watchTimeout = 10 * time.Second
)

// SetupWithManager makes the manager run what the gates need: watches and pollers, in the leader alone, each from when a
// budget or a rollout's order first asks for it.
func (f *Fleet) SetupWithManager(ctx context.Context, m ctrl.Manager) error {
	g := f.gates
	if err := m.GetFieldIndexer().IndexField(ctx, &corev1.Node{}, IndexEvicted, Evicted); err != nil {
		return fmt.Errorf("indexing nodes, %w", err)
	}
	g.changed = f.Changed
	for _, w := range g.watches() {
		if w.from == nil && w != g.pods.watch {
			w.from = m.GetCache()
		}
	}
	return m.Add(manager.RunnableFunc(func(ctx context.Context) error { return g.run(ctx, m.GetAPIReader()) }))
}

func (g *gates) watches() []*watch {
	return append([]*watch{g.namespaces.watch, g.pods.watch}, g.workloads.watches...)
}

// run starts what is wanted, until ctx ends.
func (g *gates) run(ctx context.Context, api client.Reader) error {
	var running sync.WaitGroup
	defer running.Wait()
	for {
		for _, w := range g.watches() {
			if w.take() {
				running.Go(func() { w.run(ctx, api) })
			}
		}
		for _, p := range g.alerts.take() {
			running.Go(func() { p.run(ctx) })
		}
		select {
		case <-ctx.Done():
			return nil
		case <-g.started:
		}
	}
}

// start lets run see what is wanted.
func (g *gates) start() {
	select {
	case g.started <- struct{}{}:
	default:
	}
}

// watch is one kind of objects that gates look at.
type watch struct {
	// what is the kind's plural, for messages.
	what   string
	object client.Object
	list   client.ObjectList
	from   cache.Informers
	// seen and gone are told of each object, and say whether that may matter to a gate.
	seen, gone func(client.Object) bool
	// opened, if not nil, is called once all objects have been seen.
	opened func()
	gates  *gates

	mu            sync.Mutex
	wanted, taken bool
	synced        bool
	problem       string
}

// want sees to it that the watch is started.
func (w *watch) want() {
	w.mu.Lock()
	first := !w.wanted
	w.wanted = true
	w.mu.Unlock()
	if first {
		w.gates.start()
	}
}

// take reports whether the watch is to be started now.
func (w *watch) take() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	take := w.wanted && !w.taken
	w.taken = w.taken || take
	return take
}

// unknown says why the objects are not known, or "".
func (w *watch) unknown() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.synced:
		return ""
	case w.problem != "":
		return w.problem
	}
	return w.what + " are being read"
}

// run starts the watch, and again until that succeeds. It returns when all objects are known.
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
	if w.opened != nil {
		w.opened()
	}
	w.gates.notice()
}

func (w *watch) open(ctx context.Context, api client.Reader) (toolscache.ResourceEventHandlerRegistration, error) {
	if w.from == nil {
		return nil, errors.New("there is no cache for them")
	}
	// An informer keeps to itself why it can't read.
	short, cancel := context.WithTimeout(ctx, watchTimeout)
	defer cancel()
	if err := api.List(short, w.list, client.Limit(1)); err != nil {
		return nil, err
	}
	informer, err := w.from.GetInformer(ctx, w.object, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, err
	}
	return informer.AddEventHandler(w.handler())
}

func (w *watch) fail(ctx context.Context, err error) {
	problem := ""
	if err != nil {
		problem = "reading " + w.what + ", " + err.Error()
	}
	w.mu.Lock()
	changed := problem != w.problem
	w.problem = problem
	w.mu.Unlock()
	if changed && err != nil {
		log.FromContext(ctx).Error(err, "a gate stays closed, as it can't read what it looks at", "what", w.what)
	}
	if changed {
		w.gates.notice()
	}
}

func (w *watch) handler() toolscache.ResourceEventHandler {
	tell := func(object any, how func(client.Object) bool) {
		if last, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
			object = last.Obj
		}
		if o, ok := object.(client.Object); ok && how(o) && w.unknown() == "" {
			w.gates.notice()
		}
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { tell(o, w.seen) },
		UpdateFunc: func(_, o any) { tell(o, w.seen) },
		DeleteFunc: func(o any) { tell(o, w.gone) },
	}
}
