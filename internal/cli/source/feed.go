// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// Feed keeps objects up to date by watches, for commands that follow them. Reads of its Source begin the watches.
type Feed struct {
	// Rest is how long the feed rests after a change, so that changes in a burst are shown together.
	Rest time.Duration
	// client tells whether it supports WatchList; fake clients don't.
	client  any
	watched map[string]*watched
	changed chan struct{}
	// start runs an informer.
	start func(cache.SharedIndexInformer)
}

// watched is one watched list.
type watched struct {
	informer cache.SharedIndexInformer
	// failed gets the error of an attempt to list, before the first that succeeds.
	failed chan error
	// denied is why the list may not be read.
	denied error
	// trouble is why the list may be out of date; nil if it is not.
	trouble atomic.Pointer[error]
}

// Follow makes the source answer reads from watches while the feed runs.
func (src *Source) Follow() *Feed {
	src.feed = &Feed{Rest: 100 * time.Millisecond, client: src.Client, watched: map[string]*watched{}, changed: make(chan struct{}, 1)}
	return src.feed
}

// listWatch lists and watches, and passes on the error of each attempt, which may be nil.
type listWatch func(attempted func(error)) *cache.ListWatch

// watch begins to watch.
func (f *Feed) watch(from listWatch, transform cache.TransformFunc) (*watched, error) {
	w := &watched{failed: make(chan error, 1)}
	// An informer does not tell when it recovers, unless an object has changed meanwhile.
	lw := from(func(err error) { f.recovered(w, err) })
	w.informer = cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(lw, f.client), nil, 0, nil)
	news := func() { f.report(w, nil) }
	_, err := w.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { news() }, UpdateFunc: func(any, any) { news() }, DeleteFunc: func(any) { news() },
	})
	err = errors.Join(err, w.informer.SetTransform(transform),
		w.informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) { f.watchFailed(w, err) }))
	if err == nil {
		f.start(w.informer)
	}
	return w, err
}

// objects returns the watched list called name, sorted by namespace and name. The first call begins the watch. It waits until the list was
// read, or an attempt to read it failed.
func (f *Feed) objects(ctx context.Context, name string, from listWatch, transform cache.TransformFunc) ([]any, error) {
	w := f.watched[name]
	if w == nil {
		var err error
		if w, err = f.watch(from, transform); err != nil {
			return nil, err
		}
		f.watched[name] = w
	}
	if !w.informer.HasSynced() {
		if w.denied != nil {
			return nil, w.denied
		}
		select {
		case <-w.informer.HasSyncedChecker().Done():
		case err := <-w.failed:
			if isHidden(err) {
				w.denied = err
			}
			return nil, err
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	store := w.informer.GetStore()
	keys := store.ListKeys()
	slices.Sort(keys)
	all := make([]any, 0, len(keys))
	for _, key := range keys {
		if object, ok, _ := store.GetByKey(key); ok {
			all = append(all, object)
		}
	}
	return all, nil
}

// Trouble says why the objects may be out of date: the trouble of the first watch by name that has any; nil if none has. It is called between
// reads.
func (f *Feed) Trouble() error {
	for _, name := range slices.Sorted(maps.Keys(f.watched)) {
		if err := f.watched[name].trouble.Load(); err != nil {
			return *err
		}
	}
	return nil
}

// report notes that a watch has news, or its trouble.
func (f *Feed) report(w *watched, trouble *error) {
	w.trouble.Store(trouble)
	f.wake()
}

// recovered notes that a list or watch began again, if there is no error.
func (f *Feed) recovered(w *watched, err error) {
	switch {
	case utilnet.IsConnectionRefused(err), apierrors.IsTooManyRequests(err):
		f.watchFailed(w, err) // The reflector tries again without telling anyone.
	case err == nil && w.trouble.Load() != nil:
		f.report(w, nil)
	}
}

func (f *Feed) wake() {
	select {
	case f.changed <- struct{}{}:
	default: // The next look sees it.
	}
}

// watchFailed notes that a watch ended. The informer begins another.
func (f *Feed) watchFailed(w *watched, err error) {
	if errors.Is(err, io.EOF) || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return
	}
	if w.informer.HasSynced() || !isHidden(err) {
		f.report(w, &err)
	}
	select {
	case w.failed <- err:
	default: // No read waits for it.
	}
}

// Run calls look first to begin the watches, then after changes, and at each tick. It ends when look is done or fails, or when the
// context ends: then it returns the context's cause.
func (f *Feed) Run(ctx context.Context, clk clock.Clock, tick <-chan time.Time, look func() (done bool, err error)) error {
	ctx, cancel := context.WithCancel(ctx)
	// Log lines of the libraries would mix with the command's output.
	quiet := klog.NewContext(ctx, logr.Discard())
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel()
	f.start = func(informer cache.SharedIndexInformer) { group.Go(func() { informer.RunWithContext(quiet) }) }
	f.wake() // The first look begins the watches.
	changed, rested := f.changed, (<-chan time.Time)(nil)
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-rested:
			changed, rested = f.changed, nil
			continue
		case <-changed:
			changed, rested = nil, clk.After(f.Rest)
		case <-tick:
		}
		if done, err := look(); done || err != nil {
			return err
		}
	}
}
