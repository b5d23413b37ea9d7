// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// settle is how long a feed rests after a change, so that changes in a burst are shown together.
const settle = 100 * time.Millisecond

// ErrNotRead is the error of a read that has to be repeated, because a watch has just begun.
var ErrNotRead = errors.New("not all objects are read yet")

// Feed keeps objects up to date by watches, for commands that follow them. Reads of its Source begin the watches.
type Feed struct {
	// client tells whether it supports WatchList; fake clients don't.
	client  any
	watched map[string]*watched
	changed chan struct{}
	// start runs an informer.
	start func(*watched)

	mu sync.Mutex
	// looked is true once all watches had synced.
	looked         bool
	fatal, trouble error
}

// watched is one watched list. denied is why it may not be read.
type watched struct {
	informer cache.SharedIndexInformer
	denied   error
}

// Follow makes the source answer reads from watches while the feed runs.
func (src *Source) Follow() *Feed {
	src.feed = &Feed{client: src.Client, watched: map[string]*watched{}, changed: make(chan struct{}, 1)}
	return src.feed
}

// watch begins to watch.
func (f *Feed) watch(lw *cache.ListWatch, transform cache.TransformFunc) (*watched, error) {
	w := &watched{informer: cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(lw, f.client), nil, 0, nil)}
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
	if err == nil {
		f.start(w)
	}
	return w, err
}

// objects returns the watched list called name, sorted by namespace and name. The first call begins the watch.
func (f *Feed) objects(name string, from *cache.ListWatch, transform cache.TransformFunc) ([]any, error) {
	w := f.watched[name]
	if w == nil {
		var err error
		if w, err = f.watch(from, transform); err != nil {
			return nil, err
		}
		f.watched[name] = w
	}
	f.mu.Lock()
	denied := w.denied
	f.mu.Unlock()
	switch {
	case denied != nil:
		return nil, denied
	case !w.informer.HasSynced():
		return nil, ErrNotRead
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

// Trouble says why the objects may be out of date; nil if they are not.
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
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err), apierrors.IsNotFound(err):
		w.denied = err
	case !f.looked && !w.informer.HasSynced():
		f.fatal = err
	default:
		f.trouble = err
	}
	f.wake()
}

// isReady reports whether all readable lists have synced. During trouble, it does not wait for watches that began later.
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

// Run calls look first to begin the watches, then when they have synced, after changes, and at each tick. It ends when look is done
// or fails, or when the context ends: then it returns the context's cause. A look that returns ErrNotRead is repeated.
func (f *Feed) Run(ctx context.Context, clk clock.Clock, tick <-chan time.Time, look func() (done bool, err error)) error {
	ctx, cancel := context.WithCancel(ctx)
	// Log lines of the libraries would mix with the command's output.
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
			changed, rested = nil, clk.After(settle)
		case <-tick:
		}
		ready, err := f.isReady()
		done := false
		if ready && err == nil {
			done, err = look()
		}
		if errors.Is(err, ErrNotRead) {
			continue
		}
		if done || err != nil {
			return err
		}
	}
}
