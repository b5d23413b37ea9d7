// SPDX-License-Identifier: Apache-2.0

// Package feed keeps objects up to date by watches, for commands that follow them.
package feed

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"moult.dev/moult/internal/cli/source"
)

// settle is how long a feed rests after something has changed: what changes together is looked at once.
const settle = 100 * time.Millisecond

// Feed watches objects of some kinds.
type Feed struct {
	// client is asked whether it can list by a watch; those of tests can't.
	client  any
	watched []*watched
	named   map[string]*watched
	changed chan struct{}
	// start runs an informer; nil before the feed runs.
	start func(*watched)

	mu sync.Mutex
	// looked is true once there was something to look at.
	looked         bool
	fatal, trouble error
}

// New makes a feed of no objects.
func New(client any) *Feed {
	return &Feed{client: client, named: map[string]*watched{}, changed: make(chan struct{}, 1)}
}

// watched is one kind of objects.
type watched struct {
	informer cache.SharedIndexInformer
	options  Options
	denied   error
}

// Options say how objects are watched.
type Options struct {
	// LabelSelector and FieldSelector restrict what is watched.
	LabelSelector, FieldSelector string
	// Optional objects may be out of reach: then Denied says so, and the feed goes on without them.
	Optional bool
	// Explain makes an error readable; nil leaves it.
	Explain func(error) error
}

// Objects are those of one kind, as far as they are known.
type Objects[T any] struct {
	feed *Feed
	*watched
}

// Add watches more objects. It may be called while the feed runs.
func Add[T any, L runtime.Object](f *Feed, from source.Lister[L], o Options) (*Objects[T], error) {
	transform := func(object any) (any, error) {
		if _, isObject := object.(metav1.Object); !isObject {
			return object, nil // It is a bookmark, or an object that is gone.
		}
		return source.As[T](object), nil
	}
	w, err := f.watch(source.ListWatch(from, metav1.ListOptions{LabelSelector: o.LabelSelector, FieldSelector: o.FieldSelector}), o, transform)
	return &Objects[T]{feed: f, watched: w}, err
}

// watch watches more objects.
func (f *Feed) watch(lw *cache.ListWatch, o Options, transform cache.TransformFunc) (*watched, error) {
	w := &watched{options: o, informer: cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(lw, f.client), nil, 0, nil)}
	news := func() {
		f.mu.Lock()
		f.trouble = nil
		f.mu.Unlock()
		f.wake()
	}
	_, err := w.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { news() }, UpdateFunc: func(any, any) { news() }, DeleteFunc: func(any) { news() },
	})
	err = errors.Join(err, w.informer.SetTransform(transform),
		w.informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) { f.failed(w, err) }))
	f.watched = append(f.watched, w)
	if f.start != nil {
		f.start(w)
	}
	return w, err
}

// Objects implements source.Watches.
func (f *Feed) Objects(name string, from *cache.ListWatch, transform cache.TransformFunc) ([]any, error) {
	w := f.named[name]
	if w == nil {
		var err error
		if w, err = f.watch(from, Options{Optional: true}, transform); err != nil {
			return nil, err
		}
		f.named[name] = w
	}
	f.mu.Lock()
	denied := w.denied
	f.mu.Unlock()
	switch {
	case denied != nil:
		return nil, denied
	case !w.informer.HasSynced():
		return nil, source.ErrNotRead
	}
	return w.all(), nil
}

// all are the objects, by namespace and name.
func (w *watched) all() []any {
	store := w.informer.GetStore()
	keys := store.ListKeys()
	slices.Sort(keys)
	all := make([]any, 0, len(keys))
	for _, key := range keys {
		if object, ok, _ := store.GetByKey(key); ok {
			all = append(all, object)
		}
	}
	return all
}

// All returns the objects, by namespace and name. They must not be changed. A nil *Objects has none.
func (o *Objects[T]) All() []T {
	if o == nil {
		return nil
	}
	var all []T
	for _, object := range o.all() {
		all = append(all, *object.(*T))
	}
	return all
}

// Denied says why the objects cannot be seen; nil when they can.
func (o *Objects[T]) Denied() error {
	if o == nil {
		return nil
	}
	o.feed.mu.Lock()
	defer o.feed.mu.Unlock()
	return o.denied
}

// Trouble says why what is known may be out of date; nil when it is not.
func (f *Feed) Trouble() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.trouble
}

func (f *Feed) wake() {
	select {
	case f.changed <- struct{}{}:
	default: // The next look sees it.
	}
}

// failed notes that a watch ended. The informer begins another.
func (f *Feed) failed(w *watched, err error) {
	if errors.Is(err, io.EOF) || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return
	}
	denied := apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsNotFound(err)
	if w.options.Explain != nil {
		err = w.options.Explain(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case denied && w.options.Optional:
		w.denied = err
	case denied, !f.looked && !w.informer.HasSynced():
		f.fatal = err
	default:
		f.trouble = err
	}
	f.wake()
}

// isReady reports whether everything is there that can be seen. What is added later is not waited for while there is trouble.
func (f *Feed) isReady() (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, w := range f.watched {
		if w.denied == nil && !w.informer.HasSynced() && (!f.looked || f.trouble == nil) {
			return false, f.fatal
		}
	}
	f.looked = f.fatal == nil && len(f.watched) > 0
	return true, f.fatal
}

// Run watches. It calls look when everything is there, again when something has changed, and at each tick, until look says that it is done or
// fails, or the context ends: then it returns the context's cause.
func (f *Feed) Run(ctx context.Context, clk clock.Clock, tick <-chan time.Time, look func() (done bool, err error)) error {
	ctx, cancel := context.WithCancel(ctx)
	// What the libraries log would come between the lines.
	quiet := klog.NewContext(ctx, logr.Discard())
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel()
	f.start = func(w *watched) {
		group.Go(func() { w.informer.RunWithContext(quiet) })
		// An empty list is news, too.
		group.Go(func() {
			select {
			case <-w.informer.HasSyncedChecker().Done():
				f.wake()
			case <-ctx.Done():
			}
		})
	}
	for _, w := range f.watched {
		f.start(w)
	}
	f.wake() // Where nothing is watched yet, look begins to.
	changed, rested := f.changed, (<-chan time.Time)(nil)
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-rested:
			changed, rested = f.changed, nil
			continue
		case <-changed:
			changed, rested = nil, clk.After(settle)
		case <-tick:
		}
		ready, err := f.isReady()
		done := false
		if ready && err == nil {
			done, err = look()
		}
		if done || err != nil {
			return err
		}
	}
}
