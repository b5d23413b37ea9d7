// SPDX-License-Identifier: Apache-2.0

// Package follow sees every change of some objects, in order and without a gap.
package follow

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// Begin begins a watch.
type Begin func(context.Context, metav1.ListOptions) (watch.Interface, error)

// Change is an object as it became, or as it was when it was deleted.
type Change struct {
	Type   watch.EventType
	Object metav1.Object
}

const (
	// delay is before a watch is begun again that had nothing to say, and pause after one that has failed.
	delay = 100 * time.Millisecond
	pause = 500 * time.Millisecond
	// most is how many watches in a row may fail.
	most = 50
)

// Changes sends every change after a resourceVersion to changes, until the context ends. The API server may end a watch
// at any time, most of all of who reads slowly, and be too busy for another: then it is begun again where it ended. What it
// can't give any more is an error, and so is one that lasts.
func Changes(ctx context.Context, begin Begin, resourceVersion string, changes chan<- Change) error {
	for failed := 0; ; {
		last, err := once(ctx, begin, resourceVersion, changes)
		if err == nil || last != resourceVersion {
			failed = 0
		}
		wait := time.Duration(0)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			if failed++; failed == most || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
				return fmt.Errorf("watching from %s on, %w", last, err)
			}
			wait = pause
		case last == resourceVersion:
			wait = delay
		}
		if wait > 0 {
			select {
			case <-time.After(wait):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		resourceVersion = last
	}
}

// once watches as long as one watch goes, and returns where it has come.
func once(ctx context.Context, begin Begin, last string, changes chan<- Change) (string, error) {
	watching, err := begin(ctx, metav1.ListOptions{ResourceVersion: last, AllowWatchBookmarks: true})
	if err != nil {
		return last, err
	}
	defer watching.Stop()
	for e := range watching.ResultChan() {
		if e.Type == watch.Error {
			return last, apierrors.FromObject(e.Object)
		}
		object, err := meta.Accessor(e.Object)
		if err != nil {
			return last, err
		}
		if e.Type != watch.Bookmark {
			select {
			case changes <- Change{e.Type, object}:
			case <-ctx.Done():
				return last, context.Cause(ctx)
			}
		}
		last = object.GetResourceVersion()
	}
	return last, nil
}
