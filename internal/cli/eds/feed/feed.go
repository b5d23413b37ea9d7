// SPDX-License-Identifier: Apache-2.0

// Package feed keeps objects up to date by watches, for commands that follow them.
package feed

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// settle is how long a feed rests after something has changed: what changes together is looked at once.
const settle = 100 * time.Millisecond

// Feed is objects of some kinds.
type Feed struct {
	// client is asked whether it can list by a watch; those of tests can't.
	client  any
	objects []*Objects
	// changed gets a value when there is something new to look at.
	changed chan struct{}

	mu    sync.Mutex
	fatal error
}

// New makes a feed of no objects.
func New(client any) *Feed {
	return &Feed{client: client, changed: make(chan struct{}, 1)}
}

// Objects are those of one kind.
type Objects struct {
	feed     *Feed
	informer cache.SharedIndexInformer
	optional bool
	denied   bool
}

// Add adds what this lists and watches. Where it is optional, and may not be seen, there is nothing of it to see.
func (f *Feed) Add(of runtime.Object, lw *cache.ListWatch, optional bool) (*Objects, error) {
	o := &Objects{feed: f, optional: optional}
	o.informer = cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(lw, f.client), of, 0, nil)
	_, err := o.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { f.wake() },
		UpdateFunc: func(any, any) { f.wake() },
		DeleteFunc: func(any) { f.wake() },
	})
	f.objects = append(f.objects, o)
	return o, errors.Join(
		err, o.informer.SetTransform(trim),
		o.informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) { o.failed(err) }),
	)
}

// trim drops what is never shown.
func trim(object any) (any, error) {
	if accessor, err := meta.Accessor(object); err == nil {
		accessor.SetManagedFields(nil)
	}
	return object, nil
}

// All are the objects as they are now. They are not to be changed.
func (o *Objects) All() []any { return o.informer.GetStore().List() }

// Denied reports whether they may not be seen.
func (o *Objects) Denied() bool {
	o.feed.mu.Lock()
	defer o.feed.mu.Unlock()
	return o.denied
}

func (f *Feed) wake() {
	select {
	case f.changed <- struct{}{}:
	default: // It is to be looked at already.
	}
}

// failed takes note of a watch that ended. The informer begins another.
func (o *Objects) failed(err error) {
	if errors.Is(err, io.EOF) || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return
	}
	f := o.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	final := apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsNotFound(err)
	switch {
	case o.optional && apierrors.IsForbidden(err):
		o.denied = true
	case final || !o.informer.HasSynced():
		f.fatal = err
	}
	f.wake()
}

// ready reports whether all there is to see is there.
func (f *Feed) ready() (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, o := range f.objects {
		if !o.denied && !o.informer.HasSynced() {
			return false, f.fatal
		}
	}
	return true, f.fatal
}

// Run watches. It calls look when all is there, and again when something has changed, until that says that it is done or
// fails, or the context ends; then it returns that error, or the context's cause.
func (f *Feed) Run(ctx context.Context, clk clock.Clock, look func() (done bool, err error)) error {
	ctx, cancel := context.WithCancel(ctx)
	// What the libraries would log goes nowhere: it would stand between the lines.
	quiet := klog.NewContext(ctx, logr.Discard())
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel()
	for _, o := range f.objects {
		group.Go(func() { o.informer.RunWithContext(quiet) })
		// That there is nothing is news, too.
		group.Go(func() {
			select {
			case <-o.informer.HasSyncedChecker().Done():
				f.wake()
			case <-ctx.Done():
			}
		})
	}
	changed, rested := f.changed, (<-chan time.Time)(nil)
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-rested:
			changed, rested = f.changed, nil
			continue
		case <-changed:
		}
		ready, err := f.ready()
		if err != nil {
			return err
		}
		if !ready {
			continue
		}
		if done, err := look(); done || err != nil {
			return err
		}
		changed, rested = nil, clk.After(settle)
	}
}
