// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"
)

// How long a watch is asked for. It is begun anew where it ended, without a list.
const (
	watchFor   = 45 * time.Minute
	watchShare = 1.0 / 3
)

// shortWatch is how soon a watch must end for the next one to wait longer.
const shortWatch = time.Minute

// sight is the newest that is known of the agent's own Node. The watch and the agent's own reads and writes tell it.
type sight struct {
	changed chan struct{}

	mu     sync.Mutex
	synced bool
	node   *metav1.PartialObjectMetadata
}

func newSight() *sight { return &sight{changed: make(chan struct{}, 1)} }

// now is the Node, nil when there is none; false when nothing is known yet.
func (s *sight) now() (*metav1.PartialObjectMetadata, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.node, s.synced
}

// see takes a Node as it is, unless a newer one has been seen.
func (s *sight) see(n *metav1.PartialObjectMetadata) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.node != nil && !newer(n, s.node) {
		return
	}
	s.node, s.synced = n, true
	s.tell()
}

// miss takes it that there is no Node. If gone is not nil, that very one was deleted.
func (s *sight) miss(gone *metav1.PartialObjectMetadata) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.node != nil && gone != nil && s.node.UID != gone.UID {
		return
	}
	s.node, s.synced = nil, true
	s.tell()
}

func (s *sight) tell() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// newer reports whether a Node is a later state than another. Where that can't be told it is.
func newer(n, than *metav1.PartialObjectMetadata) bool {
	order, err := resourceversion.CompareResourceVersion(n.ResourceVersion, than.ResourceVersion)
	return err != nil || order > 0
}

// watcher keeps the sight of one Node up to date.
type watcher struct {
	clock  clock.Clock
	random func() float64
	reads  *reader
	sight  *sight
	log    *slog.Logger
}

// run watches until the context ends: a list once, and then one watch after the other from where the last one ended. It lists again
// only when the API server has forgotten that place.
func (w *watcher) run(ctx context.Context) {
	pause := backoff{first: time.Second, most: 2 * time.Minute}
	from := ""
	for {
		began := w.clock.Now()
		err := w.once(ctx, &from)
		if ctx.Err() != nil {
			return
		}
		if w.clock.Since(began) >= shortWatch {
			pause.reset()
		}
		if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
			from = ""
		}
		wait := pause.next(w.random)
		level := slog.LevelDebug
		if err != nil {
			level = slog.LevelWarn
		}
		w.log.Log(ctx, level, "the watch has ended", "error", err, "again", wait.Round(time.Millisecond))
		if !sleep(ctx, w.clock, wait) {
			return
		}
	}
}

// once lists if there is no place to go on from, and watches until the watch ends. It keeps the place up to date.
func (w *watcher) once(ctx context.Context, from *string) error {
	if *from == "" {
		n, resourceVersion, err := w.reads.list(ctx)
		if err != nil {
			return err
		}
		if n == nil {
			w.sight.miss(nil)
		} else {
			w.sight.see(n)
		}
		*from = resourceVersion
	}
	stream, err := w.reads.watch(ctx, *from, spread(watchFor, watchShare, w.random))
	if err != nil {
		return err
	}
	defer stream.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case event, ok := <-stream.ResultChan():
			if !ok {
				return nil
			}
			if event.Type == watch.Error {
				return fmt.Errorf("watching node %s, %w", w.reads.name, apierrors.FromObject(event.Object))
			}
			n, ok := event.Object.(*metav1.PartialObjectMetadata)
			if !ok {
				return fmt.Errorf("watching node %s, it sent %T", w.reads.name, event.Object)
			}
			*from = n.ResourceVersion
			switch event.Type {
			case watch.Added, watch.Modified:
				w.sight.see(n)
			case watch.Deleted:
				w.sight.miss(n)
			}
		}
	}
}

// sleep waits; it returns false if the context ends before.
func sleep(ctx context.Context, c clock.Clock, d time.Duration) bool {
	timer := c.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C():
		return true
	}
}
